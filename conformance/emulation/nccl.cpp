// A stand-in of NCCL for the GPUs of one process, or of several, on the mock of the driver.
//
// What was asked for is done when the outermost group ends, and looked at first: NCCL would wait for
// ever where communicators do not ask for the same, or where one of several that a process has asks
// alone outside of a group. Processes meet in shared memory that has the clique's name. One that
// waits there for another one waits for ever, as with NCCL, or until it is aborted.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE };
#define NEED(condition, error) do { if (!(condition)) return error; } while (0)

struct UniqueId { char internal[128]; };
struct Room;
struct Communicator { int rank, count; UniqueId id; std::atomic<bool> aborted; Room *room; };
struct Asked {
    std::string name;
    const char *source;
    char *target;
    size_t count;
    int type, op, peer;
    Communicator *communicator;
    void *stream;
};

static int depth, made, state;
static bool grouped_init;
static std::vector<Asked> asked;
static std::map<std::string, std::vector<Communicator *>> cliques;
static std::string told;
static int (*wait_for)(void *);
static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

API void standin_begin(int (*wait)(void *)) { wait_for = wait; told.clear(); }
API const char *standin_told() { return told.c_str(); }
API void standin_fail(int error) { state = error; }

// Where processes of a clique meet. Each has a seat; all go through the same turns.
static const int SEATS = 8;
static const size_t ROOM = 1 << 16;
struct Header { char name[16]; size_t count, bytes; int type, op; };
struct Seat { std::atomic<long> came, left; Header header; char bytes[ROOM]; };
struct Room { Seat seats[SEATS]; };

static Room *enter(const UniqueId &id) {
    char name[160];
    snprintf(name, sizeof name, "/standin-%s", id.internal);
    for (char *each = name + 1; *each; each++) if (*each == ' ') *each = '-';
    const int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Room))) return nullptr;
    void *found = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return found == MAP_FAILED ? nullptr : (Room *)found;
}
static void forget(const UniqueId &id) {
    char name[160];
    snprintf(name, sizeof name, "/standin-%s", id.internal);
    for (char *each = name + 1; *each; each++) if (*each == ' ') *each = '-';
    shm_unlink(name);
}
// Whether all have come as often as this one, or left.
static bool all_there(Communicator *me, std::atomic<long> Seat::*which) {
    const long turn = ++(me->room->seats[me->rank].*which);
    for (int other = 0; other < me->count; other++)
        while ((me->room->seats[other].*which).load() < turn) {
            if (me->aborted) return false;
            usleep(50);
        }
    return true;
}

API int ncclGetUniqueId(UniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "clique %d-%d", (int)getpid(), ++made);
    return SUCCESS;
}
API int ncclCommInitRank(Communicator **communicator, int count, UniqueId id, int rank) {
    NEED(count > 0 && rank >= 0 && rank < count, INVALID_ARGUMENT);
    NEED(!strncmp(id.internal, "clique ", 7), INVALID_ARGUMENT);
    *communicator = new Communicator{rank, count, id, {false}, nullptr};
    cliques[id.internal].push_back(*communicator);
    grouped_init = true;
    return SUCCESS;
}
API int ncclCommAbort(Communicator *communicator) {
    communicator->aborted = true;
    told += "Abort\n";
    return SUCCESS;
}
API int ncclCommGetAsyncError(Communicator *, int *error) { return *error = state, SUCCESS; }
API const char *ncclGetErrorString(int error) {
    return error == INVALID_USAGE ? "invalid usage" : error == INVALID_ARGUMENT
        ? "invalid argument" : "some error";
}

static int ask(const char *name, const void *source, void *target, size_t count, int type, int op,
               int peer, Communicator *communicator, void *stream) {
    NEED(communicator && !communicator->aborted && stream, INVALID_ARGUMENT);
    NEED(type >= 0 && type < 10 && op >= 0 && op < 4, INVALID_ARGUMENT);
    NEED(peer >= 0 && peer < communicator->count, INVALID_ARGUMENT);
    NEED(depth || communicator->count == 1 || communicator->room, INVALID_USAGE);
    char line[128];
    snprintf(line, sizeof line, "%s rank %d count %zu type %d op %d peer %d\n", name,
             communicator->rank, count, type, op, peer);
    told += line;
    asked.push_back({name, (const char *)source, (char *)target, count, type, op, peer,
                     communicator, stream});
    return SUCCESS;
}
API int ncclAllReduce(const void *source, void *target, size_t count, int type, int op,
                      Communicator *communicator, void *stream) {
    return ask("AllReduce", source, target, count, type, op, 0, communicator, stream);
}
API int ncclReduceScatter(const void *source, void *target, size_t count, int type, int op,
                          Communicator *communicator, void *stream) {
    return ask("ReduceScatter", source, target, count, type, op, 0, communicator, stream);
}
API int ncclAllGather(const void *source, void *target, size_t count, int type,
                      Communicator *communicator, void *stream) {
    return ask("AllGather", source, target, count, type, 0, 0, communicator, stream);
}
API int ncclSend(const void *source, size_t count, int type, int peer, Communicator *communicator,
                 void *stream) {
    return ask("Send", source, nullptr, count, type, 0, peer, communicator, stream);
}
API int ncclRecv(void *target, size_t count, int type, int peer, Communicator *communicator,
                 void *stream) {
    return ask("Recv", nullptr, target, count, type, 0, peer, communicator, stream);
}

template <class T> static void combine(char *into, const char *with, size_t count, int op) {
    T *a = (T *)into;
    const T *b = (const T *)with;
    for (size_t i = 0; i < count; i++)
        a[i] = op == 0 ? a[i] + b[i] : op == 1 ? a[i] * b[i]
            : op == 2 ? std::max(a[i], b[i]) : std::min(a[i], b[i]);
}
static int combined(char *into, const char *with, size_t count, int type, int op) {
    switch (type) {
    case 2: return combine<int32_t>(into, with, count, op), SUCCESS;
    case 3: return combine<uint32_t>(into, with, count, op), SUCCESS;
    case 4: return combine<int64_t>(into, with, count, op), SUCCESS;
    case 5: return combine<uint64_t>(into, with, count, op), SUCCESS;
    case 7: return combine<float>(into, with, count, op), SUCCESS;
    case 8: return combine<double>(into, with, count, op), SUCCESS;
    }
    return INVALID_ARGUMENT;
}

// One collective, of which every member of the clique has asked for its part.
static int collective(const std::vector<Asked> &all) {
    const Asked &first = all[0];
    const size_t size = first.count * SIZES[first.type], members = all.size();
    for (const Asked &each : all)
        NEED(each.name == first.name && each.count == first.count && each.type == first.type
             && each.op == first.op, INVALID_USAGE);
    const bool gather = first.name == "AllGather", scatter = first.name == "ReduceScatter";
    const size_t whole = gather || scatter ? size * members : size;
    std::vector<char> value(whole);
    for (size_t i = 0; i < members; i++) {
        if (gather) memcpy(&value[i * size], all[i].source, size);
        else if (i == 0) memcpy(value.data(), all[i].source, whole);
        else {
            const int error = combined(value.data(), all[i].source, whole / SIZES[first.type],
                                       first.type, first.op);
            NEED(!error, error);
        }
    }
    for (size_t i = 0; i < members; i++)
        memcpy(all[i].target, scatter ? &value[i * size] : value.data(), scatter ? size : whole);
    return SUCCESS;
}

// What one process of several has asked for: each collective in turn, then what is sent.
static int one_turn(Communicator *me, const std::string &name, const Header &header,
                    const std::vector<char> &mine, std::vector<Asked> *all,
                    std::vector<std::vector<char>> *bytes) {
    NEED(mine.size() <= ROOM && me->count <= SEATS, INTERNAL);
    Seat &seat = me->room->seats[me->rank];
    seat.header = header;
    snprintf(seat.header.name, sizeof seat.header.name, "%s", name.c_str());
    memcpy(seat.bytes, mine.data(), mine.size());
    NEED(all_there(me, &Seat::came), REMOTE);
    bytes->clear();
    for (int other = 0; other < me->count; other++) {
        const Seat &there = me->room->seats[other];
        bytes->push_back(std::vector<char>(there.bytes, there.bytes + there.header.bytes));
        all->push_back({there.header.name, nullptr, nullptr, there.header.count,
                        there.header.type, there.header.op, 0, nullptr, nullptr});
    }
    NEED(all_there(me, &Seat::left), REMOTE);
    return SUCCESS;
}
static int across(Communicator *me, const std::vector<Asked> &now) {
    std::vector<char> sends;
    for (const Asked &each : now) {
        const size_t size = each.count * SIZES[each.type];
        if (each.name == "Send") {
            const size_t head[] = {(size_t)each.peer, size};
            sends.insert(sends.end(), (const char *)head, (const char *)(head + 2));
            sends.insert(sends.end(), each.source, each.source + size);
        }
        if (each.name == "Send" || each.name == "Recv") continue;
        const size_t given = each.name == "ReduceScatter" ? size * me->count : size;
        std::vector<Asked> all;
        std::vector<std::vector<char>> bytes;
        const int error = one_turn(me, each.name, {"", each.count, given, each.type, each.op},
                                   {each.source, each.source + given}, &all, &bytes);
        NEED(!error, error);
        std::vector<std::vector<char>> results(me->count);
        for (int other = 0; other < me->count; other++) {
            results[other].resize(each.name == "AllGather" ? size * me->count : size);
            all[other].source = bytes[other].data();
            all[other].target = other == me->rank ? each.target : results[other].data();
        }
        const int wrong = collective(all);
        NEED(!wrong, wrong);
    }
    if (std::none_of(now.begin(), now.end(), [](const Asked &one) {
            return one.name == "Send" || one.name == "Recv"; })) return SUCCESS;
    std::vector<Asked> all;
    std::vector<std::vector<char>> bytes;
    const int error = one_turn(me, "Send", {"", 0, sends.size(), 0, 0}, sends, &all, &bytes);
    NEED(!error, error);
    for (const Asked &each : now) {
        if (each.name != "Recv") continue;
        std::vector<char> &there = bytes[each.peer];
        bool found = false;
        for (size_t at = 0; at < there.size() && !found;) {
            size_t head[2];
            memcpy(head, &there[at], sizeof head);
            if ((found = head[0] == (size_t)me->rank)) {
                NEED(head[1] == each.count * SIZES[each.type], INVALID_USAGE);
                memcpy(each.target, &there[at + sizeof head], head[1]);
                there.erase(there.begin() + at, there.begin() + at + sizeof head + head[1]);
            }
            at += sizeof head + head[1];
        }
        NEED(found, INVALID_USAGE);
    }
    return SUCCESS;
}

API int ncclGroupStart() { return depth++, SUCCESS; }
API int ncclGroupEnd() {
    NEED(depth > 0, INVALID_USAGE);
    if (--depth) return SUCCESS;
    std::vector<Asked> now;
    now.swap(asked);
    for (const Asked &each : now) NEED(!wait_for(each.stream), CUDA_ERROR);
    for (auto &clique : cliques) {
        std::vector<Communicator *> members = clique.second;
        Communicator *first = members[0];
        if (members.size() == 1 && first->count > 1) {  // others have the rest
            if (!first->room) {
                first->room = enter(first->id);
                NEED(first->room, SYSTEM_ERROR);
                NEED(all_there(first, &Seat::came), REMOTE);
                forget(first->id);
                NEED(all_there(first, &Seat::left), REMOTE);
            }
            std::vector<Asked> own;
            for (const Asked &each : now)
                if (each.communicator == first) own.push_back(each);
            const int error = across(first, own);
            NEED(!error, error);
            continue;
        }
        std::sort(members.begin(), members.end(),
                  [](Communicator *a, Communicator *b) { return a->rank < b->rank; });
        for (size_t i = 0; i < members.size(); i++)
            NEED(members[i]->rank == (int)i && members[i]->count == (int)members.size(),
                 INVALID_USAGE);
        std::vector<std::vector<Asked>> own(members.size());
        std::vector<std::pair<Asked, std::vector<char>>> sent;
        for (const Asked &each : now) {
            if (clique.first != each.communicator->id.internal) continue;
            if (each.name == "Send")
                sent.push_back({each, std::vector<char>(each.source, each.source + each.count
                                                        * SIZES[each.type])});
            else if (each.name != "Recv") own[each.communicator->rank].push_back(each);
        }
        for (const Asked &each : now) {
            if (clique.first != each.communicator->id.internal || each.name != "Recv") continue;
            auto from = std::find_if(sent.begin(), sent.end(), [&](auto &one) {
                return one.first.communicator->rank == each.peer
                    && one.first.peer == each.communicator->rank;
            });
            NEED(from != sent.end() && from->first.count == each.count
                 && from->first.type == each.type, INVALID_USAGE);
            memcpy(each.target, from->second.data(), from->second.size());
            sent.erase(from);
        }
        NEED(sent.empty(), INVALID_USAGE);
        for (auto &each : own) NEED(each.size() == own[0].size(), INVALID_USAGE);
        for (size_t turn = 0; turn < own[0].size(); turn++) {
            std::vector<Asked> all;
            for (auto &each : own) all.push_back(each[turn]);
            const int error = collective(all);
            NEED(!error, error);
        }
    }
    return SUCCESS;
}
