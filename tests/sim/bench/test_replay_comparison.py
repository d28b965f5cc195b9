"""Laws of the models of replay servers, the recorded run that they are held to, and the switch in virtual time."""

import numpy as np
import pytest
import typer

from iswitch.estimate.costs import TCP, Costs
from sim.bench import replay_comparison, replay_costs, replay_switch
from sim.bench.replay_client_work import ClientWork, OwnWork
from sim.bench.replay_comparison import agreement, lead
from sim.bench.replay_costs import ReplayCosts, Workload
from sim.bench.replay_models import SYSTEMS, Model, Round
from sim.bench.replay_program import SCALES, Metered
from sim.bench.replay_redis import SAMPLE
from sim.bench.replay_switch import IDLE, SwitchRound, at_scale, rounds, whole
from sim.bench.replay_traffic import NARROW

WORKLOAD = Workload(100, 4000, 256)
NOTHING = ReplayCosts(*[0.0] * (len(ReplayCosts._fields) - 1), buffer="numpy")
IDEAL = Costs(card_us=0, cable_us=0, forward_us=0)
SOME = ReplayCosts(3e-5, 4e-5, 2e-5, 1e-4, 1e-4, 1e-4, 2e-5, 3e-4, 2e-5, 1e-5, 8e-5, 9e-5, 1e-5, buffer="numpy")
"""Costs of about the size of real ones. A socket takes eight times as long as a copy."""


def simulated(name, measured=SOME, actors=4, costs=None, **options):
    return Model(SYSTEMS[name], WORKLOAD, measured, actors, costs or Costs(), rate_bps=40e9, **options).run()


@pytest.mark.parametrize("actors", [1, 3, 8])
def test_on_ideal_hosts_a_round_is_the_bytes_of_the_busiest_cable(actors):
    push_s, batch_s = (8 * TCP.wire_bytes(size) / 40e9 for size in (WORKLOAD.push_bytes, WORKLOAD.batch_bytes))
    pushed = actors * push_s
    for name, other_s in (("learner's memory", 0), ("Redis", pushed), ("server samples, kernel bypass", batch_s)):
        assert simulated(name, NOTHING, actors, IDEAL).round_s == pytest.approx(max(pushed, other_s), rel=0.02)


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_fibre_before_the_learner_adds_a_round_trip_to_what_crosses_it(name):
    """A push to the learner's memory, or a batch of a server. Other waits for the same cable change, too."""
    near, far = (simulated(name, NOTHING, 1, far_us=far_us) for far_us in (0, 50))
    crosses, other = ("sample_s", "push_s") if SYSTEMS[name].server else ("push_s", "sample_s")
    assert getattr(far, crosses) - getattr(near, crosses) == pytest.approx(100e-6, abs=10e-6)
    assert abs(getattr(far, other) - getattr(near, other)) < 100e-6


@pytest.mark.parametrize("actors", [1, 8])
def test_bypassing_the_kernel_is_never_slower(actors):
    kernel, bypass = simulated("Redis", actors=actors), simulated("Redis, kernel bypass", actors=actors)
    assert bypass.push_s < 0.75 * kernel.push_s
    assert bypass.access_s < kernel.access_s and bypass.round_s < kernel.round_s


def test_a_server_that_is_one_thread_serves_pushes_one_after_another():
    slow = SOME._replace(serve_push_s=1e-3)
    ratio = simulated("Redis", slow, 8).round_s / simulated("Redis", slow, 4).round_s
    assert ratio == pytest.approx(2, rel=0.1)


def test_fewer_cores_are_never_faster():
    times_s = [
        Model(SYSTEMS["Redis"], WORKLOAD, SOME, 4, Costs(), rate_bps=None, cores=cores).run().round_s
        for cores in (1, 2, 4, None)
    ]
    assert times_s == sorted(times_s, reverse=True) and times_s[0] > 1.5 * times_s[-1]


def test_the_model_of_redis_agrees_with_the_recorded_run():
    found = list(agreement(replay_costs.read()))
    assert len(found) == len(replay_costs.WORKLOADS) * len(replay_costs.ACTORS)
    for name, actors, model, real in found:
        least, most = (0.8, 1.2) if name == "stacks" else (0.4, 2.3)
        for part in ("push_s", "sample_s", "round_s"):
            assert least <= getattr(model, part) / getattr(real, part) <= most, (name, actors, part)


def test_a_model_with_a_machine_for_each_process_does_not_agree():
    turns = [turn._replace(cores=64) for turn in replay_costs.read()]
    found = {(name, actors): model.push_s / real.push_s for name, actors, model, real in agreement(turns)}
    assert found["stacks", 4] < 0.8  # else it agrees


def simulated_switch(far_us=0.0, work=IDLE):
    return rounds(Workload(10, 32, 64), 1, work=work, far_us=far_us, scale=SAMPLE // 16, count=2, config=NARROW)


def small(workload, scale):
    spec, data, priorities = DATA_OF(workload, 1)
    return spec, data, priorities


DATA_OF = replay_switch.data_of


def test_fibre_before_the_learner_adds_two_round_trips_to_a_batch_of_the_switch_and_nothing_to_a_push(monkeypatch):
    """SAMPLE, and then FETCH."""
    monkeypatch.setattr(replay_switch, "data_of", small)
    (push_s, batch_s, _), (far_push_s, far_batch_s, _) = simulated_switch(), simulated_switch(50.0)
    assert far_push_s == pytest.approx(push_s, abs=5e-6)
    assert far_batch_s - batch_s == pytest.approx(4 * 50e-6, abs=5e-6)


@pytest.mark.parametrize("own", [(400.0, 0.0), (0.0, 100.0)], ids=["constant", "datagrams"])
@pytest.mark.parametrize("operation", ClientWork._fields)
def test_the_clients_own_work_lengthens_its_own_operation(monkeypatch, operation, own):
    """The operation takes longer by its constant part and by the work for a request and its answer, at least. A round
    takes longer by the learner's work, but the actors push beside it."""
    monkeypatch.setattr(replay_switch, "data_of", small)
    work = IDLE._replace(**{operation: OwnWork(*own, 10)})
    idle, busy = simulated_switch(), simulated_switch(work=work)
    longer = [after - before for before, after in zip(idle, busy, strict=True)]
    push_s, sample_s, round_s = longer
    assert (push_s >= 199e-6) == (operation == "push")
    assert (sample_s >= 399e-6) == (operation == "sample")
    assert operation == "push" or round_s >= 199e-6


def test_work_that_does_not_depend_on_datagrams_is_in_proportion_to_the_items():
    work = ClientWork(*(OwnWork(100.0 * k, 7.0, 9) for k in range(3)))
    assert at_scale(work, 40, 100) == ClientWork(*(OwnWork(pytest.approx(40.0 * k), 7.0, 9) for k in range(3)))


def test_a_record_that_was_never_pushed_is_noticed(monkeypatch):
    made = iter(range(100))

    def differing(workload, scale):
        spec, data, priorities = small(workload, scale)
        return spec, {"record": data["record"] + np.uint8(next(made))}, priorities

    monkeypatch.setattr(replay_switch, "data_of", small)
    monkeypatch.setattr(replay_switch, "run_programs", changing(replay_switch.run_programs))
    with pytest.raises(RuntimeError, match="never pushed"):
        simulated_switch()


def changing(run):
    """Let the learner find records that differ by one bit from what is in the switch."""

    def changed(config, functions, machines):
        learner = functions[-1]

        def learn(program):
            original = replay_switch.ReplayClient.sample
            with pytest.MonkeyPatch.context() as patch:

                def sample(self, *arguments, **options):
                    batch = original(self, *arguments, **options)
                    batch.data["record"][0, 0] ^= 1
                    return batch

                patch.setattr(replay_switch.ReplayClient, "sample", sample)
                return learner(program)

        return run(config, [*functions[:-1], learn], machines)

    return changed


class Echo:
    """Receives three datagrams of 10 bytes whatever is sent."""

    def send(self, burst, segment_bytes):
        pass

    def receive(self, into, timeout_s):
        return 30, 10


def test_datagrams_are_counted_and_time_in_the_transport_is_not():
    transport = Metered(Echo())
    transport.send(bytes(25), 10)
    transport.receive(memoryview(bytearray(30)), 0)
    datagrams, spent_s = transport.take()
    assert datagrams == 6 and spent_s >= 0
    assert transport.take()[0] == 0


def test_a_line_through_two_scales_gives_the_whole_size():
    def row(scale):
        """A round of constant 3 and 7 for the whole size."""
        return SwitchRound("stacks", 1, 0.0, "python", *[3 + 7 / scale] * 3, scale)

    assert whole([row(100), row(40)]) == Round(pytest.approx(10), 0, pytest.approx(10), pytest.approx(10))
    assert whole([row(2)]).push_s == 2 * (3 + 3.5)


def test_the_break_even_is_the_share_of_the_clients_work_at_which_both_are_equally_fast():
    def rows(seconds):
        return {1: Round(0, 0, 0, seconds)}

    found = {name: rows(8.0) for name in SYSTEMS} | {"Redis": rows(4.0)}
    found |= {"switch": rows(10.0), "switch, client without Python": rows(2.0)}
    assert lead(found, 1) == ("Redis", 0.4, 2.0, 0.25)


def test_costs_and_real_rounds_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_costs, "WORKLOADS", {"small": Workload(10, 40_000, 64)})
    monkeypatch.setattr(replay_costs, "ACTORS", (1,))
    out = tmp_path / "costs.json"
    replay_costs.main(out, turns=1, realtime=False)
    (turn,) = replay_costs.read(out)
    assert (turn.workload, turn.actors, turn.costs.buffer in ("numpy", "cpprb")) == ("small", 1, True)
    assert 0 < turn.push_s < turn.round_s and 0 < turn.sample_s < turn.round_s
    assert min(turn.costs[:-1]) >= 0 and turn.costs.push_s >= turn.costs.push_kernel_s


def test_a_workload_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(typer.BadParameter, match="no workload is called 'images'; there are vectors, frames, stacks"):
        replay_costs.main(tmp_path / "costs.json", only="images")


def test_the_record_has_every_round():
    rows = replay_switch.read().rounds
    assert {row[:4] + (row.scale,) for row in rows} == {
        (name, actors, far_us, client, scale)
        for name, scales in SCALES.items()
        for actors in replay_switch.ACTORS
        for far_us in replay_comparison.NEAR_OR_FAR
        for client in replay_switch.CLIENTS
        for scale in scales
    }
    assert len(rows) == 64


def test_the_command_writes_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(replay_comparison, "WORKLOADS", {"vectors": replay_costs.WORKLOADS["vectors"]})
    monkeypatch.setattr(replay_comparison, "findings", lambda: iter([("what", "10 %", [0.1, 0.2, 0.3, 0.4])]))
    replay_comparison.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "break-even at" in capsys.readouterr().out
