"""The files of a training, as `iswitch report` reads them."""

import json

import pytest

from iswitch.report.training import TrainingFilesError, read_trainings

HEAD = "update,steps,mean_return,seconds,environment_s,compute_s,aggregation_s\n"
ROWS = "20,640,11.5,1.25,0.5,0.5,0.25\n40,1280,nan,2.5,1.0,1.0,0.5\n"
CURVE = [
    {"update": 20, "steps": 640, "mean_return": 11.5, "seconds": 1.25, "missing": [], "allreduces": 20},
    {"update": 40, "steps": 1280, "mean_return": 30.5, "seconds": 2.5, "missing": [], "allreduces": 40},
]


def summary(**changes):
    fields = {
        "curve": CURVE,
        "seconds": {"environment": 1.1, "aggregation": 0.6, "compute": 1.2},
        "workers": 4,
        "mean_reward_eval": 500.0,
        "options": {"environment": "CartPole-v1"},
    }
    return json.dumps(fields | changes)


def test_a_training_that_runs_shows_its_curve_split_and_latency(tmp_path):
    (tmp_path / "progress.csv").write_text(HEAD + ROWS)
    [training] = read_trainings(tmp_path)
    assert [(point.steps, point.seconds) for point in training.curve] == [(640, 1.25), (1280, 2.5)]
    assert training.curve[0].mean_return == 11.5 and training.curve[1].mean_return != training.curve[1].mean_return
    assert training.split == {"environment": 1.0, "compute": 1.0, "aggregation": 0.5}
    assert training.aggregation_ms == [(2.5, 12.5)]
    assert [point.latency_ms for point in training.curve] == [{}, {}]


def test_the_latencies_of_a_training_are_read_where_they_are_recorded(tmp_path):
    head = HEAD.replace("\n", ",latency_p50_ms,latency_p99_ms\n")
    (tmp_path / "progress.csv").write_text(head + "20,640,11.5,1.25,0.5,0.5,0.25,,\n40,1280,nan,2.5,1,1,0.5,4.5,9.25\n")
    [training] = read_trainings(tmp_path)
    assert [point.latency_ms for point in training.curve] == [{}, {"p50": 4.5, "p99": 9.25}]


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    (tmp_path / "progress.csv").write_text(HEAD + ROWS + "60,19")
    assert len(read_trainings(tmp_path)[0].curve) == 2
    (tmp_path / "progress.csv").write_text(HEAD[:10])
    assert read_trainings(tmp_path)[0].curve == []


def test_a_finished_training_without_progress_has_the_curve_of_its_summary(tmp_path):
    (tmp_path / "summary.json").write_text(summary())
    [training] = read_trainings(tmp_path)
    assert [point.mean_return for point in training.curve] == [11.5, 30.5] and training.aggregation_ms == []
    assert training.split == {"environment": 1.1, "compute": 1.2, "aggregation": 0.6}
    assert training.facts == {"environment": "CartPole-v1", "workers": "4", "evaluation": "500.0"}


def test_the_summary_of_an_earlier_training_in_the_folder_is_left_out(tmp_path):
    (tmp_path / "summary.json").write_text(summary())
    (tmp_path / "progress.csv").write_text(HEAD + ROWS.splitlines(keepends=True)[0])
    assert read_trainings(tmp_path)[0].facts == {}
    (tmp_path / "progress.csv").write_text(HEAD + ROWS.replace("nan", "30.5"))
    assert read_trainings(tmp_path)[0].facts["workers"] == "4"


def test_the_trainings_of_the_folders_below_are_read(tmp_path):
    for name in ("b", "a", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "progress.csv").write_text(HEAD + ROWS)
    (tmp_path / "b" / "summary.json").write_text(summary(seconds=None))
    assert [(training.name, len(training.split)) for training in read_trainings(tmp_path)] == [("a", 3), ("b", 0)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", "", "holds neither progress.csv nor summary.json"),
        ("progress.csv", "a,b\n1,2\n", "other columns or values"),
        ("progress.csv", HEAD + "1,2,x,4,5,6,7\n", "other columns or values"),
        ("summary.json", "{", "is not JSON"),
        ("summary.json", "{}", "has no `curve`"),
    ],
)
def test_a_folder_without_a_training_is_an_error_that_says_what_helps(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(TrainingFilesError, match=message) as caught:
        read_trainings(tmp_path)
    assert "give the folder" in str(caught.value).lower()
    with pytest.raises(TrainingFilesError, match="there is no folder"):
        read_trainings(tmp_path / "nowhere")
