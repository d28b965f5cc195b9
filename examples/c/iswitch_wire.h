// The wire format of iswitch, written by `python -m iswitch.wire.c_header`. docs/protocol.md explains it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "fields are little-endian on the wire unless their comment says big-endian"
#endif

#define ISWITCH_VERSION 0x2
#define ISWITCH_UDP_PORT 0x6953
#define ISWITCH_FLAGS_SHIFT 0x4
#define ISWITCH_NO_MEMBER 0xff
#define ISWITCH_MAGIC 0x54575349

enum iswitch_type {
    ISWITCH_TYPE_CONTRIBUTION = 0,
    ISWITCH_TYPE_RESULT = 1,
    ISWITCH_TYPE_UPLINK = 2,
    ISWITCH_TYPE_RECEIPT = 3,
    ISWITCH_TYPE_NOTICE = 4,
    ISWITCH_TYPE_CONTROL = 5,
    ISWITCH_TYPE_ACK = 6,
    ISWITCH_TYPE_CLAIM = 7,
    ISWITCH_TYPE_GRANT = 8,
    ISWITCH_TYPE_REFUSE = 9,
    ISWITCH_TYPE_REQUEST = 10,
    ISWITCH_TYPE_ANSWER = 11,
    ISWITCH_TYPE_DATA = 12,
};

enum iswitch_format {
    ISWITCH_FORMAT_WINDOW64 = 1,
    ISWITCH_FORMAT_FP32 = 2,
    ISWITCH_FORMAT_INT32 = 3,
    ISWITCH_FORMAT_FIXED64 = 4,
    ISWITCH_FORMAT_BF16 = 5,
    ISWITCH_FORMAT_FP16 = 6,
};

enum iswitch_contribution_flag {
    ISWITCH_CONTRIBUTION_FLAG_RETRANSMISSION = 1,
    ISWITCH_CONTRIBUTION_FLAG_BOUNDARY = 2,
    ISWITCH_CONTRIBUTION_FLAG_REQUIRES_ALL = 8,
    ISWITCH_CONTRIBUTION_FLAG_WANT = 8,
};

enum iswitch_result_flag {
    ISWITCH_RESULT_FLAG_PARTIAL = 1,
    ISWITCH_RESULT_FLAG_RESENT = 2,
    ISWITCH_RESULT_FLAG_TAINTED = 4,
    ISWITCH_RESULT_FLAG_MEMBERS_CHANGED = 8,
};

enum iswitch_action {
    ISWITCH_ACTION_JOIN = 1,
    ISWITCH_ACTION_LEAVE = 2,
    ISWITCH_ACTION_RESET = 3,
    ISWITCH_ACTION_SET_H = 4,
    ISWITCH_ACTION_READ = 5,
    ISWITCH_ACTION_FBCAST = 6,
    ISWITCH_ACTION_HALT = 7,
    ISWITCH_ACTION_END = 8,
    ISWITCH_ACTION_RESUME = 9,
};

enum iswitch_reason {
    ISWITCH_REASON_DONE = 0,
    ISWITCH_REASON_JOB = 1,
    ISWITCH_REASON_EPOCH = 2,
    ISWITCH_REASON_MEMBER = 3,
    ISWITCH_REASON_TOKEN = 4,
    ISWITCH_REASON_NUMBER = 5,
    ISWITCH_REASON_KEY = 6,
    ISWITCH_REASON_WORLD = 7,
    ISWITCH_REASON_THRESHOLD = 8,
    ISWITCH_REASON_FORMAT = 9,
    ISWITCH_REASON_FRACTION = 10,
    ISWITCH_REASON_ELEMENTS = 11,
    ISWITCH_REASON_MODE = 12,
    ISWITCH_REASON_DEADLINE = 13,
    ISWITCH_REASON_EVICT = 14,
    ISWITCH_REASON_ACTION = 15,
    ISWITCH_REASON_SEQ = 16,
    ISWITCH_REASON_HALTED = 17,
    ISWITCH_REASON_STALENESS = 18,
    ISWITCH_REASON_SEGMENTS = 19,
    ISWITCH_REASON_COLLECTIVE = 20,
    ISWITCH_REASON_CHALLENGE = 21,
    ISWITCH_REASON_PORT = 22,
    ISWITCH_REASON_ADDRESS = 23,
    ISWITCH_REASON_OPERATOR_KEY = 24,
};

enum iswitch_collective {
    ISWITCH_COLLECTIVE_ALLREDUCE = 1,
    ISWITCH_COLLECTIVE_BROADCAST = 2,
    ISWITCH_COLLECTIVE_BARRIER = 3,
    ISWITCH_COLLECTIVE_ELECTION = 4,
    ISWITCH_COLLECTIVE_STATE = 5,
    ISWITCH_COLLECTIVE_UPDATE = 6,
};

enum iswitch_mode {
    ISWITCH_MODE_QUARANTINE = 0,
    ISWITCH_MODE_PROPAGATE = 1,
};

enum iswitch_job_state {
    ISWITCH_JOB_STATE_NONE = 0,
    ISWITCH_JOB_STATE_FORMING = 1,
    ISWITCH_JOB_STATE_RUNNING = 2,
    ISWITCH_JOB_STATE_HALTED = 3,
};

enum iswitch_member_state {
    ISWITCH_MEMBER_STATE_NONE = 0,
    ISWITCH_MEMBER_STATE_JOINING = 1,
    ISWITCH_MEMBER_STATE_LIVE = 2,
};

enum iswitch_register {
    ISWITCH_REGISTER_MAGIC = 0,
    ISWITCH_REGISTER_VERSION = 1,
    ISWITCH_REGISTER_PORTS = 2,
    ISWITCH_REGISTER_BUS_BITS = 3,
    ISWITCH_REGISTER_MEMBERS = 4,
    ISWITCH_REGISTER_JOBS = 5,
    ISWITCH_REGISTER_WINDOW = 6,
    ISWITCH_REGISTER_ELEMENTS = 7,
    ISWITCH_REGISTER_AGES = 32,
    ISWITCH_REGISTER_OUTCOMES = 64,
    ISWITCH_REGISTER_STATS = 128,
    ISWITCH_REGISTER_REPLAY_OUTCOMES = 192,
    ISWITCH_REGISTER_REPLAY = 224,
    ISWITCH_REGISTER_PORT_COUNTERS = 256,
    ISWITCH_REGISTER_JOBS_VIEW = 1024,
    ISWITCH_REGISTER_HAVE_VIEW = 2048,
    ISWITCH_REGISTER_MEMBERS_VIEW = 4096,
    ISWITCH_REGISTER_SLOTS_VIEW = 1048576,
};

enum iswitch_ack_register {
    ISWITCH_ACK_REGISTER_CHALLENGE = 0,
    ISWITCH_ACK_REGISTER_JOB_TOKEN = 1,
    ISWITCH_ACK_REGISTER_RENEWED = 2,
};

struct iswitch_header {
    uint8_t version_type;
    uint8_t job;
    uint16_t epoch;
    uint32_t seq;
    uint8_t member;
    uint8_t format_flags;
    uint16_t count;
    uint16_t behind;
    uint32_t members;
    uint32_t token;
} __attribute__((packed));
_Static_assert(offsetof(struct iswitch_header, version_type) == 0, "header.version_type");
_Static_assert(offsetof(struct iswitch_header, job) == 1, "header.job");
_Static_assert(offsetof(struct iswitch_header, epoch) == 2, "header.epoch");
_Static_assert(offsetof(struct iswitch_header, seq) == 4, "header.seq");
_Static_assert(offsetof(struct iswitch_header, member) == 8, "header.member");
_Static_assert(offsetof(struct iswitch_header, format_flags) == 9, "header.format_flags");
_Static_assert(offsetof(struct iswitch_header, count) == 10, "header.count");
_Static_assert(offsetof(struct iswitch_header, behind) == 12, "header.behind");
_Static_assert(offsetof(struct iswitch_header, members) == 14, "header.members");
_Static_assert(offsetof(struct iswitch_header, token) == 18, "header.token");
_Static_assert(sizeof(struct iswitch_header) == 22, "header");

struct iswitch_contribution_header {
    uint8_t version_type;
    uint8_t job;
    uint16_t epoch;
    uint32_t seq;
    uint8_t member;
    uint8_t format_flags;
    uint16_t digest;
    uint16_t behind;
    uint32_t collective;
    uint32_t token;
} __attribute__((packed));
_Static_assert(offsetof(struct iswitch_contribution_header, version_type) == 0, "contribution_header.version_type");
_Static_assert(offsetof(struct iswitch_contribution_header, job) == 1, "contribution_header.job");
_Static_assert(offsetof(struct iswitch_contribution_header, epoch) == 2, "contribution_header.epoch");
_Static_assert(offsetof(struct iswitch_contribution_header, seq) == 4, "contribution_header.seq");
_Static_assert(offsetof(struct iswitch_contribution_header, member) == 8, "contribution_header.member");
_Static_assert(offsetof(struct iswitch_contribution_header, format_flags) == 9, "contribution_header.format_flags");
_Static_assert(offsetof(struct iswitch_contribution_header, digest) == 10, "contribution_header.digest");
_Static_assert(offsetof(struct iswitch_contribution_header, behind) == 12, "contribution_header.behind");
_Static_assert(offsetof(struct iswitch_contribution_header, collective) == 14, "contribution_header.collective");
_Static_assert(offsetof(struct iswitch_contribution_header, token) == 18, "contribution_header.token");
_Static_assert(sizeof(struct iswitch_contribution_header) == 22, "contribution_header");

struct iswitch_result_header {
    uint8_t version_type;
    uint8_t job;
    uint16_t epoch;
    uint32_t seq;
    uint8_t member;
    uint8_t format_flags;
    uint32_t tainted;
    uint32_t members;
    uint32_t token;
} __attribute__((packed));
_Static_assert(offsetof(struct iswitch_result_header, version_type) == 0, "result_header.version_type");
_Static_assert(offsetof(struct iswitch_result_header, job) == 1, "result_header.job");
_Static_assert(offsetof(struct iswitch_result_header, epoch) == 2, "result_header.epoch");
_Static_assert(offsetof(struct iswitch_result_header, seq) == 4, "result_header.seq");
_Static_assert(offsetof(struct iswitch_result_header, member) == 8, "result_header.member");
_Static_assert(offsetof(struct iswitch_result_header, format_flags) == 9, "result_header.format_flags");
_Static_assert(offsetof(struct iswitch_result_header, tainted) == 10, "result_header.tainted");
_Static_assert(offsetof(struct iswitch_result_header, members) == 14, "result_header.members");
_Static_assert(offsetof(struct iswitch_result_header, token) == 18, "result_header.token");
_Static_assert(sizeof(struct iswitch_result_header) == 22, "result_header");

struct iswitch_tail {
    uint16_t identity;
    uint16_t complement;  // big-endian
} __attribute__((packed));
_Static_assert(offsetof(struct iswitch_tail, identity) == 0, "tail.identity");
_Static_assert(offsetof(struct iswitch_tail, complement) == 2, "tail.complement");
_Static_assert(sizeof(struct iswitch_tail) == 4, "tail");

struct iswitch_control {
    uint8_t action;
    uint8_t format;
    int16_t fraction;
    uint16_t world;
    uint16_t threshold;
    uint16_t elements;
    uint8_t mode;
    uint8_t staleness;
    uint32_t deadline_us;
    uint64_t key;
    uint64_t nonce;
    uint32_t evict_us;
    uint32_t segment;
    uint32_t address;
    uint32_t segments;
    uint32_t job_token;
    uint32_t challenge;
    uint64_t operator_key;
} __attribute__((packed));
_Static_assert(offsetof(struct iswitch_control, action) == 0, "control.action");
_Static_assert(offsetof(struct iswitch_control, format) == 1, "control.format");
_Static_assert(offsetof(struct iswitch_control, fraction) == 2, "control.fraction");
_Static_assert(offsetof(struct iswitch_control, world) == 4, "control.world");
_Static_assert(offsetof(struct iswitch_control, threshold) == 6, "control.threshold");
_Static_assert(offsetof(struct iswitch_control, elements) == 8, "control.elements");
_Static_assert(offsetof(struct iswitch_control, mode) == 10, "control.mode");
_Static_assert(offsetof(struct iswitch_control, staleness) == 11, "control.staleness");
_Static_assert(offsetof(struct iswitch_control, deadline_us) == 12, "control.deadline_us");
_Static_assert(offsetof(struct iswitch_control, key) == 16, "control.key");
_Static_assert(offsetof(struct iswitch_control, nonce) == 24, "control.nonce");
_Static_assert(offsetof(struct iswitch_control, evict_us) == 32, "control.evict_us");
_Static_assert(offsetof(struct iswitch_control, segment) == 36, "control.segment");
_Static_assert(offsetof(struct iswitch_control, address) == 40, "control.address");
_Static_assert(offsetof(struct iswitch_control, segments) == 44, "control.segments");
_Static_assert(offsetof(struct iswitch_control, job_token) == 48, "control.job_token");
_Static_assert(offsetof(struct iswitch_control, challenge) == 52, "control.challenge");
_Static_assert(offsetof(struct iswitch_control, operator_key) == 56, "control.operator_key");
_Static_assert(sizeof(struct iswitch_control) == 64, "control");

struct iswitch_ack {
    uint8_t action;
    uint8_t reason;
    uint8_t state;
    uint8_t standing;
    uint16_t window;
    uint16_t elements;
    uint16_t world;
    uint16_t live;
    uint32_t first_seq;
    uint64_t nonce;
    uint16_t threshold;
    uint16_t members;
    uint32_t address;
    uint32_t registers[8];
} __attribute__((packed));
_Static_assert(offsetof(struct iswitch_ack, action) == 0, "ack.action");
_Static_assert(offsetof(struct iswitch_ack, reason) == 1, "ack.reason");
_Static_assert(offsetof(struct iswitch_ack, state) == 2, "ack.state");
_Static_assert(offsetof(struct iswitch_ack, standing) == 3, "ack.standing");
_Static_assert(offsetof(struct iswitch_ack, window) == 4, "ack.window");
_Static_assert(offsetof(struct iswitch_ack, elements) == 6, "ack.elements");
_Static_assert(offsetof(struct iswitch_ack, world) == 8, "ack.world");
_Static_assert(offsetof(struct iswitch_ack, live) == 10, "ack.live");
_Static_assert(offsetof(struct iswitch_ack, first_seq) == 12, "ack.first_seq");
_Static_assert(offsetof(struct iswitch_ack, nonce) == 16, "ack.nonce");
_Static_assert(offsetof(struct iswitch_ack, threshold) == 24, "ack.threshold");
_Static_assert(offsetof(struct iswitch_ack, members) == 26, "ack.members");
_Static_assert(offsetof(struct iswitch_ack, address) == 28, "ack.address");
_Static_assert(offsetof(struct iswitch_ack, registers) == 32, "ack.registers");
_Static_assert(sizeof(struct iswitch_ack) == 64, "ack");
