// The emulated board: one switch, its ports as queues of frames, and a clock that runs whole batches of cycles.
//
// Compiled once per configuration together with the RTL of either engine (see compile.py). The plain C interface at the
// end is all that leaves the library; it needs neither Amaranth nor a compiler. Contexts are independent of each other;
// one context must not be used by two threads at a time. Times are in cycles unless a name says otherwise.
//
// Between pins and switch stands a register on every input (wrapper.py). A tick is the edge with which a cycle begins: the
// registers take what the pins offer for that cycle, and after it the outputs show the cycle's settled values. So there
// is one evaluation in a cycle where pins that reach into logic would need two, and nothing is later by it: what to offer
// next depends on the outputs of the cycle before only.
//
// Some parts of the switch have clocks of their own, so that a part that is idle costs nothing: its clock stands still from
// SETTLING_CYCLES after its last active cycle until the part is active again, or until an input changes that is not a
// stream. Every register that another one or an output depends on is the same as with all clocks running.
//
// pins.h, written by compile.py, defines ISW_PORTS, ISW_BUS_BYTES, ISW_CONFIG (JSON), ISW_ENGINE, ISW_EACH_PORT(X), ISW_GATED
// (the number of parts with a clock of their own) and ISW_EACH_GATED(X), and includes the model. Every pin is reached through a byte pointer: both engines keep values little-endian.

#include "pins.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

constexpr int PORTS = ISW_PORTS;
constexpr size_t BUS_BYTES = ISW_BUS_BYTES;
constexpr size_t QUEUE_FRAMES = 1024;       // frames a receive queue holds unless isw_limit says otherwise
constexpr size_t FRAME_BYTES_MOST = 65536;  // a transmitted frame longer than this lost its `last`
constexpr size_t TRACE_MOST = 1 << 20;      // trace entries kept until they are fetched
constexpr int IDLE_CYCLES = 8;              // quiet cycles after which a run ends
constexpr int RESET_CYCLES = 4;
constexpr int SETTLING_CYCLES = 4;          // cycles after which a part that is not active has come to rest
constexpr int PARENT_BYTES = 16;

struct Pins {
    uint8_t *rst, *now_us, *link, *seed, *operator_key, *own_mac, *own_ip, *parents, *busy;
    uint8_t *trace_valid, *trace_outcome, *trace_port, *trace_job, *trace_member, *trace_seq;
    struct Rx { uint8_t *data, *bytes, *last, *error, *valid, *ready; } rx[PORTS];
    struct Tx { uint8_t *data, *bytes, *last, *valid, *ready; } tx[PORTS];
};

#ifdef ISW_CXXRTL

template <size_t Bits> uint8_t *pin(cxxrtl::value<Bits> &value) { return reinterpret_cast<uint8_t *>(value.data); }
template <size_t Bits> uint8_t *pin(cxxrtl::wire<Bits> &wire) { return reinterpret_cast<uint8_t *>(wire.curr.data); }

class Model {
    cxxrtl_design::p_board top;

public:
    Pins pins;

    Model() {
#define ISW_PIN(name) pins.name = pin(top.p_##name)
#define ISW_TRACE_PIN(name) pins.trace_##name = pin(top.p_trace__##name)
        ISW_PIN(rst), ISW_PIN(link), ISW_PIN(seed), ISW_PIN(parents), ISW_PIN(busy);
        pins.now_us = pin(top.p_now__us), pins.operator_key = pin(top.p_operator__key), pins.own_mac = pin(top.p_own__mac), pins.own_ip = pin(top.p_own__ip);
        ISW_TRACE_PIN(valid), ISW_TRACE_PIN(outcome), ISW_TRACE_PIN(port), ISW_TRACE_PIN(job);
        ISW_TRACE_PIN(member), ISW_TRACE_PIN(seq);
#define ISW_BIND(p) \
        pins.rx[p] = {pin(top.p_rx##p##__data), pin(top.p_rx##p##__bytes), pin(top.p_rx##p##__last), \
                      pin(top.p_rx##p##__error), pin(top.p_rx##p##__valid), pin(top.p_rx##p##__ready)}; \
        pins.tx[p] = {pin(top.p_tx##p##__data), pin(top.p_tx##p##__bytes), pin(top.p_tx##p##__last), \
                      pin(top.p_tx##p##__valid), pin(top.p_tx##p##__ready)};
        ISW_EACH_PORT(ISW_BIND)
    }
    // The edge commits registers; what follows from them is seen one step later.
    void tick() {
        top.p_clk.set(true), top.step();
        top.p_clk.set(false), top.step();
    }
    bool all_clocks;  // they run in any case
    void wake() {}
    bool wave(const char *) { return false; }
    bool write_coverage(const char *) { return false; }
};

#else

template <typename Signal> uint8_t *pin(Signal &signal) { return reinterpret_cast<uint8_t *>(&signal); }

class Model {
    VerilatedContext context;
    Vboard top{&context};
#if VM_TRACE
    VerilatedVcdC vcd;
    uint64_t half_cycle = 0;
    bool waving = false;
    void dump() { if (waving) vcd.dump(half_cycle++); }
#else
    void dump() {}
#endif

    int runs[ISW_GATED + 1];  // for how many cycles each clock still runs

    bool clock(int part, bool active) {
        if (active || all_clocks) runs[part] = SETTLING_CYCLES + 1;
        return runs[part] && runs[part]--;
    }

public:
    Pins pins;
    bool all_clocks = false;

    Model() {
        wake();
#define ISW_PIN(name) pins.name = pin(top.name)
        ISW_PIN(rst), ISW_PIN(now_us), ISW_PIN(link), ISW_PIN(seed), ISW_PIN(operator_key), ISW_PIN(own_mac), ISW_PIN(own_ip), ISW_PIN(parents), ISW_PIN(busy);
        ISW_PIN(trace_valid), ISW_PIN(trace_outcome), ISW_PIN(trace_port), ISW_PIN(trace_job);
        ISW_PIN(trace_member), ISW_PIN(trace_seq);
#define ISW_BIND(p) \
        pins.rx[p] = {pin(top.rx##p##_data), pin(top.rx##p##_bytes), pin(top.rx##p##_last), \
                      pin(top.rx##p##_error), pin(top.rx##p##_valid), pin(top.rx##p##_ready)}; \
        pins.tx[p] = {pin(top.tx##p##_data), pin(top.tx##p##_bytes), pin(top.tx##p##_last), \
                      pin(top.tx##p##_valid), pin(top.tx##p##_ready)};
        ISW_EACH_PORT(ISW_BIND)
    }
    ~Model() {
#if VM_TRACE
        if (waving) vcd.close();
#endif
        top.final();
    }
    void tick() {
#define ISW_CLOCK(number, part) top.part##_clk = clock(number, top.part##_active);
#define ISW_LOW(number, part) top.part##_clk = 0;
        top.clk = 1;
        ISW_EACH_GATED(ISW_CLOCK)
        top.eval(), dump();
        top.clk = 0;
        ISW_EACH_GATED(ISW_LOW)
        top.eval(), dump();
    }
    // Lets all clocks run for as long as it takes until an input that has changed is settled.
    void wake() {
        for (int &left : runs) left = SETTLING_CYCLES + 2;
    }
    bool wave(const char *path) {
#if VM_TRACE
        if (!waving) context.traceEverOn(true), top.trace(&vcd, 99);
        vcd.open(path);
        return waving = vcd.isOpen();
#else
        return (void)path, false;
#endif
    }
    bool write_coverage(const char *path) {
#if VM_COVERAGE
        return context.coveragep()->write(path), true;
#else
        return (void)path, false;
#endif
    }
};

#endif

uint64_t splitmix(uint64_t &state) {
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

// Withholds valid or ready: on each cycle that is free to, with `chance` / 2^32 for `length` cycles.
struct Stall {
    uint64_t chance = 0, state = 0;
    uint32_t length = 1, left = 0;

    bool next() {
        if (left) return left--, true;
        if (!chance || (splitmix(state) >> 32) >= chance) return false;
        return left = length - 1, true;
    }
};

// What a MAC reports with a frame's last word: nothing, a bad FCS, or that it had no room for the whole frame.
enum Damage { INTACT, BAD_FCS, TRUNCATED };

struct Received {
    std::vector<uint8_t> bytes;
    int damage;
};

struct Sent {
    std::vector<uint8_t> bytes;
    uint64_t first, last;
};

struct Stamp {
    uint64_t first, last;
};

enum Violation { WITHDRAWN, CHANGED, BAD_BYTES, ENDLESS, VIOLATIONS };
enum Flag { FLAG_WATCH = 1, FLAG_TRACE = 2, FLAG_STAMPS = 4, FLAG_ALL_CLOCKS = 8 };

struct Port {
    // Into the switch. `at` is the first byte of the word to offer; once offered it stays until it is taken.
    std::deque<Received> queue;
    size_t at = 0;
    bool offered = false;
    bool linked = true;
    uint64_t first = 0;
    std::deque<Stamp> stamps;
    Stall rx_stall, tx_stall;
    // Out of the switch.
    std::vector<uint8_t> assembly;
    uint64_t tx_first = 0;
    std::deque<Sent> frames;
    bool held = false;
    uint8_t held_data[BUS_BYTES], held_bytes, held_last;
    uint64_t violations[VIOLATIONS] = {};
};

struct Trace {
    uint64_t cycle;
    uint32_t seq;
    uint8_t outcome, port, job, member;
};
static_assert(sizeof(Trace) == 16, "a trace entry is 16 bytes without padding");

struct Context {
    Model model;
    Port ports[PORTS];
    std::deque<Trace> trace;
    uint64_t cycle = 0, trace_lost = 0, noise = 1;
    uint32_t flags = 0;
    size_t limit = QUEUE_FRAMES;

    Context(uint64_t seed, const uint8_t *mac, const uint8_t *ip) {
        Pins &pins = model.pins;
        memcpy(pins.seed, &seed, 8);
        memcpy(pins.own_mac, mac, 6);
        memcpy(pins.own_ip, ip, 4);
        for (int p = 0; p < PORTS; p++) set_link(p, true);
        reset();
    }

    // Without a link a MAC takes frames and loses them, and no frame comes in but the one that has begun.
    void set_link(int p, bool up) {
        Port &port = ports[p];
        uint8_t mask = 1 << p % 8;
        model.pins.link[p / 8] = (model.pins.link[p / 8] & ~mask) | (up ? mask : 0);
        port.linked = up;
        model.wake();
        if (!up) {
            size_t begun = port.offered || port.at;
            while (port.queue.size() > begun) port.queue.pop_back();
        }
    }

    // What was inside the switch is gone; what waits at its ports comes after the reset, a half-sent frame from its beginning.
    void reset() {
        Pins &pins = model.pins;
        for (int p = 0; p < PORTS; p++) {
            *pins.rx[p].valid = 0, *pins.tx[p].ready = 0;
            ports[p].offered = ports[p].held = false;
            ports[p].at = 0;
            ports[p].assembly.clear();
        }
        *pins.rst = 1;
        model.wake();
        for (int i = 0; i < RESET_CYCLES; i++) model.tick();
        *pins.rst = 0;
    }

    // Puts the next word on a port's pins, unless one is there already or the stall says no. True if a word is offered.
    bool offer(int p) {
        Port &port = ports[p];
        Pins::Rx &pins = model.pins.rx[p];
        if (port.offered) return true;
        if (port.queue.empty() || port.rx_stall.next()) {
            *pins.valid = 0;
            if (flags & FLAG_WATCH) {  // what is not valid must not matter
                uint64_t noise_word = splitmix(noise);
                memset(pins.data, noise_word, BUS_BYTES);
                *pins.last = noise_word >> 8 & 1, *pins.error = noise_word >> 9 & 1;
            }
            return !port.queue.empty();
        }
        const Received &frame = port.queue.front();
        size_t left = frame.bytes.size() - port.at, count = std::min(left, BUS_BYTES);
        memcpy(pins.data, frame.bytes.data() + port.at, count);
        if (count < BUS_BYTES) memset(pins.data + count, flags & FLAG_WATCH ? splitmix(noise) : 0, BUS_BYTES - count);
        *pins.bytes = left <= BUS_BYTES && frame.damage == TRUNCATED ? 0 : count;
        *pins.last = left <= BUS_BYTES;
        *pins.error = left <= BUS_BYTES && frame.damage;
        *pins.valid = 1;
        return port.offered = true;
    }

    void accept(int p) {
        Port &port = ports[p];
        if (!port.at) port.first = cycle;
        port.at += BUS_BYTES;
        port.offered = false;
        if (port.at < port.queue.front().bytes.size()) return;
        if (flags & FLAG_STAMPS) port.stamps.push_back({port.first, cycle});
        port.queue.pop_front();
        port.at = 0;
    }

    void watch(int p) {
        Port &port = ports[p];
        const Pins::Tx &pins = model.pins.tx[p];
        if (port.held) {
            if (!*pins.valid) port.violations[WITHDRAWN]++;
            else if (*pins.bytes != port.held_bytes || *pins.last != port.held_last ||
                     memcmp(pins.data, port.held_data, std::min<size_t>(port.held_bytes, BUS_BYTES)))
                port.violations[CHANGED]++;
        }
        port.held = *pins.valid && !*pins.ready;
        if (port.held) {
            memcpy(port.held_data, pins.data, BUS_BYTES);
            port.held_bytes = *pins.bytes, port.held_last = *pins.last;
        }
    }

    void take(int p) {
        Port &port = ports[p];
        const Pins::Tx &pins = model.pins.tx[p];
        size_t count = *pins.bytes;
        if (!count || count > BUS_BYTES || (!*pins.last && count != BUS_BYTES)) port.violations[BAD_BYTES]++;
        if (port.assembly.empty()) port.tx_first = cycle;
        port.assembly.insert(port.assembly.end(), pins.data, pins.data + std::min(count, BUS_BYTES));
        bool endless = port.assembly.size() > FRAME_BYTES_MOST;
        if (endless) port.violations[ENDLESS]++;
        if (!*pins.last && !endless) return;
        if (port.linked) port.frames.push_back({std::move(port.assembly), port.tx_first, cycle});
        port.assembly = {};
        port.assembly.reserve(2048);
    }

    void note() {
        const Pins &pins = model.pins;
        if (trace.size() >= TRACE_MOST) { trace_lost++; return; }
        Trace entry{cycle, 0, *pins.trace_outcome, *pins.trace_port, *pins.trace_job, *pins.trace_member};
        memcpy(&entry.seq, pins.trace_seq, 4);
        trace.push_back(entry);
    }

    uint64_t run(uint64_t max_cycles, uint32_t now_us) {
        Pins &pins = model.pins;
        if (memcmp(pins.now_us, &now_us, 4)) model.wake();
        memcpy(pins.now_us, &now_us, 4);
        uint64_t start = cycle, end = cycle + max_cycles;
        for (int quiet = 0; cycle < end && quiet < IDLE_CYCLES; cycle++) {
            bool active = false;
            for (int p = 0; p < PORTS; p++) {
                active |= offer(p);
                *pins.tx[p].ready = !ports[p].linked || !ports[p].tx_stall.next();
            }
            model.tick();
            for (int p = 0; p < PORTS; p++) {
                if (flags & FLAG_WATCH) watch(p);
                if (ports[p].offered && *pins.rx[p].ready) accept(p);
                if (*pins.tx[p].valid) {
                    active = true;
                    if (*pins.tx[p].ready) take(p);
                }
            }
            if (flags & FLAG_TRACE && *pins.trace_valid) note();
            active |= *pins.busy;
            quiet = active ? 0 : quiet + 1;
        }
        return cycle - start;
    }
};

bool exists(int port) { return port >= 0 && port < PORTS; }

}  // namespace

#define ISW_ABI extern "C" __attribute__((visibility("default")))

// Version of this interface, and what the library was built from.
ISW_ABI int isw_abi() { return 5; }
ISW_ABI int isw_ports() { return PORTS; }
ISW_ABI int isw_bus_bits() { return 8 * BUS_BYTES; }
ISW_ABI const char *isw_config() { return ISW_CONFIG; }
ISW_ABI const char *isw_engine() { return ISW_ENGINE; }

// A switch of its own, out of reset. mac is 6 bytes, ip 4, both in wire order.
ISW_ABI Context *isw_open(uint64_t seed, const uint8_t *mac, const uint8_t *ip) { return new Context(seed, mac, ip); }
// A key that ends any job; 0, the default, for none.
ISW_ABI void isw_operator_key(Context *context, uint64_t key) { memcpy(context->model.pins.operator_key, &key, 8); }
ISW_ABI void isw_close(Context *context) { delete context; }

// Makes the switch a leaf in a job: where its parent is (wire order), and which ranks join below.
ISW_ABI void isw_parent(Context *context, int job, int port, const uint8_t *mac, const uint8_t *ip, uint32_t ranks) {
    uint8_t *parent = context->model.pins.parents + PARENT_BYTES * job;
    memcpy(parent, mac, 6);
    memcpy(parent + 6, ip, 4);
    memcpy(parent + 10, &ranks, 4);
    parent[14] = port, parent[15] = 1;
    context->model.wake();
}

// Takes a port's cable out (up 0) or puts it in. Frames that are sent while it is out are lost.
ISW_ABI void isw_link(Context *context, int port, int up) {
    if (exists(port)) context->set_link(port, up);
}

// Resets the running switch, as a board's button would.
ISW_ABI void isw_reset(Context *context) { context->reset(); }

// Frames a receive queue may hold.
ISW_ABI void isw_limit(Context *context, uint64_t frames) { context->limit = frames; }

// 1 watches handshakes (and feeds noise where nothing is valid), 2 keeps the trace, 4 keeps the stamps of sent frames, 8
// lets the clocks of idle parts run.
ISW_ABI void isw_flags(Context *context, uint32_t flags) {
    context->flags = flags;
    context->model.all_clocks = flags & FLAG_ALL_CLOCKS;
    for (Port &port : context->ports) port.held = false;
}

// Queues one frame, without its FCS, on a port's receive side, with its Damage. 1 if queued, 0 if the queue is full, -1 if it cannot be.
ISW_ABI int isw_send(Context *context, int port, const uint8_t *bytes, uint32_t length, int damage) {
    if (!exists(port) || !length || length > FRAME_BYTES_MOST) return -1;
    Port &target = context->ports[port];
    if (!target.linked) return 1;
    if (target.queue.size() >= context->limit) return 0;
    target.queue.push_back({{bytes, bytes + length}, damage});
    return 1;
}

// Queues up to `count` frames that lie one behind the other; returns how many the queue took.
ISW_ABI int isw_send_many(Context *context, int port, const uint8_t *bytes, const uint32_t *lengths,
                          const uint8_t *damages, int count) {
    for (int i = 0; i < count; bytes += lengths[i++])
        if (isw_send(context, port, bytes, lengths[i], damages[i]) != 1) return i;
    return count;
}

// Frames waiting: direction 0 to enter the switch, 1 to be fetched.
ISW_ABI int isw_waiting(const Context *context, int port, int direction) {
    if (!exists(port)) return -1;
    return direction ? context->ports[port].frames.size() : context->ports[port].queue.size();
}

// Runs until nothing is queued or in flight, at most max_cycles; returns the cycles run. now_us holds throughout.
ISW_ABI uint64_t isw_run(Context *context, uint64_t max_cycles, uint32_t now_us) {
    return context->run(max_cycles, now_us);
}

// Next transmitted frame of a port with the cycles of its first and last word: its length, 0 if there is none, or minus
// its length if it does not fit and stays.
ISW_ABI int isw_receive(Context *context, int port, uint8_t *bytes, uint32_t capacity, uint64_t *first,
                        uint64_t *last) {
    if (!exists(port) || context->ports[port].frames.empty()) return 0;
    Sent &frame = context->ports[port].frames.front();
    int length = frame.bytes.size();
    if (frame.bytes.size() > capacity) return -length;
    memcpy(bytes, frame.bytes.data(), length);
    *first = frame.first, *last = frame.last;
    context->ports[port].frames.pop_front();
    return length;
}

// As many transmitted frames as fit, one behind the other; returns how many. stamps gets first and last for each.
ISW_ABI int isw_receive_many(Context *context, int port, uint8_t *bytes, uint32_t capacity, uint32_t *lengths,
                             uint64_t *stamps, int count) {
    int got = 0;
    for (int length; got < count; got++, bytes += length, capacity -= length) {
        length = isw_receive(context, port, bytes, capacity, &stamps[2 * got], &stamps[2 * got + 1]);
        if (length <= 0) break;
        lengths[got] = length;
    }
    return got;
}

// Cycles in which the first and last word of the oldest frame not yet asked for went into a port. 0 if there is none.
ISW_ABI int isw_sent_stamp(Context *context, int port, uint64_t *first, uint64_t *last) {
    if (!exists(port) || context->ports[port].stamps.empty()) return 0;
    Stamp stamp = context->ports[port].stamps.front();
    *first = stamp.first, *last = stamp.last;
    context->ports[port].stamps.pop_front();
    return 1;
}

// Stalls a port (direction 0: rx valid, 1: tx ready) with chance / 2^32 in a free cycle, for `length` cycles.
ISW_ABI int isw_stall(Context *context, int port, int direction, uint64_t chance, uint32_t length, uint64_t seed) {
    if (!exists(port) || !length || chance > 1ull << 32) return -1;
    Stall stall{chance, seed, length, 0};
    (direction ? context->ports[port].tx_stall : context->ports[port].rx_stall) = stall;
    return 0;
}

// Up to `count` of the oldest trace entries; returns how many. *lost is how many were never kept.
ISW_ABI int isw_trace(Context *context, Trace *entries, int count, uint64_t *lost) {
    int got = std::min<size_t>(count, context->trace.size());
    std::copy_n(context->trace.begin(), got, entries);
    context->trace.erase(context->trace.begin(), context->trace.begin() + got);
    *lost = context->trace_lost;
    return got;
}

// Broken promises on a port's transmit side: 0 valid withdrawn, 1 word changed while waiting, 2 wrong byte count,
// 3 frame without an end. The first two are seen only while watching.
ISW_ABI uint64_t isw_violations(const Context *context, int port, int kind) {
    return exists(port) && kind >= 0 && kind < VIOLATIONS ? context->ports[port].violations[kind] : 0;
}

ISW_ABI uint64_t isw_cycles(const Context *context) { return context->cycle; }

// Writes waveforms (VCD) from now on. 0 if the library was built without them.
ISW_ABI int isw_wave(Context *context, const char *path) { return context->model.wave(path); }

// Writes how often each part of the RTL has been executed so far. 0 if the library was built without coverage.
ISW_ABI int isw_coverage(Context *context, const char *path) { return context->model.write_coverage(path); }
