// Runs kernels on a CPU, thread by thread.
//
// Every thread of a block is a fiber on the host thread that launches. A few blocks are resident at once. The scheduler goes
// round: over the resident blocks and, inside, over the threads that can go on, both in an order shuffled anew each time from a
// seed (CUZARR_SIMT_SEED), and runs each until it waits at a barrier, at a warp operation, yields, or ends. So a kernel that
// relies on an order fails sooner or later, and a run can be repeated. A round in which no fiber moves is a deadlock, which is
// reported, not waited for.
//
// AddressSanitizer is told of every change of stack, shared memory is a heap block of its own for each array, so that it
// sees accesses outside of it. This file itself is not sanitized (`build_simt.sh`): tests spend most of their time in it.

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "simt.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {
namespace {

const size_t kStackBytes = 192 << 10;
/// Fibers' stacks begin at so many different places, this far from each other. At one place of all stacks they would share a few
/// lines of the caches.
const size_t kStackPlaces = 61, kStackStepBytes = 1088;
const u32 kResidentBlocks = 4;
const u32 kWarp = 32;
/// Rounds in which threads only yield, before they count as waiting for ever.
const u64 kPatience = 1u << 20;
const int kPoison = 0xA5;

struct Kernel {
    void* function;
    Invoker invoker;
    const size_t* sizes;
    size_t count;
};

std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

enum class State { Ready, Barrier, Warp, Done };

struct Block;

struct Fiber {
#if defined(__x86_64__)
    void* stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
    char* stack = nullptr;
    void* fake_stack = nullptr;
    State state = State::Ready;
    Block* block = nullptr;
    Place place{};
    // The operation that it waits for in its warp, what it brings and takes, and the result.
    WarpOperation operation = WarpOperation::Barrier;
    u32 lanes = 0, from = 0;
    u64 value = 0, received = 0;
    size_t stack_place = 0;
};

struct Block {
    u32 index = 0;
    u32 live = 0;
    // Threads at the barrier, and the lanes of each warp that wait at a warp operation.
    u32 at_barrier = 0;
    std::vector<u32> in_warps;
    std::vector<Fiber*> threads;
    // Threads to run in the next round.
    std::vector<Fiber*> ready;
    std::map<const void*, std::unique_ptr<char[]>> shared;
};

#if defined(__x86_64__)
// Saves the callee-saved registers on the old stack, and goes on where the new one left off.
extern "C" void cuzarr_simt_switch(void** save, void* load);
__asm__(
    ".text\n.globl cuzarr_simt_switch\n.hidden cuzarr_simt_switch\n.type cuzarr_simt_switch,@function\n"
    "cuzarr_simt_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size cuzarr_simt_switch,.-cuzarr_simt_switch\n");
#endif

struct Scheduler {
    Kernel kernel{};
    void** arguments = nullptr;
    u32 blocks = 0, threads = 0;
    Fiber* current = nullptr;
    bool moved = false;
    u64 random = 1;
    std::string error;
    std::vector<std::unique_ptr<Fiber>> pool;
    std::vector<Fiber*> unused;
    void* own_fake_stack = nullptr;
    const void* own_stack = nullptr;
    size_t own_stack_bytes = 0;
#if defined(__x86_64__)
    void* own_stack_pointer = nullptr;
#else
    ucontext_t own_context;
#endif

    ~Scheduler() {
        for (auto& fiber : pool) munmap(fiber->stack, kStackBytes);
    }

    u32 draw(u32 below) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return static_cast<u32>((random >> 32) * below >> 32);
    }

    template <class T>
    void shuffle(std::vector<T>& items) {
        for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[draw(static_cast<u32>(i))]);
    }

    void enter(Fiber* fiber);
    void leave(bool for_ever);
    Fiber* take();
    void start(Block& block);
    void release_barrier(Block& block);
    int run();
};

/// That of this host thread, once it has launched a kernel.
__thread Scheduler* scheduler __attribute__((tls_model("initial-exec"))) = nullptr;

void fiber_main() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler->own_stack, &scheduler->own_stack_bytes);
    scheduler->kernel.invoker(scheduler->kernel.function, scheduler->arguments);
    Fiber* fiber = scheduler->current;
    fiber->state = State::Done;
    --fiber->block->live;
    scheduler->leave(true);
    std::abort();  // a fiber that is done is not entered again
}

void Scheduler::enter(Fiber* fiber) {
    current = fiber;
    running = &fiber->place;
    __sanitizer_start_switch_fiber(&own_fake_stack, fiber->stack, kStackBytes);
#if defined(__x86_64__)
    cuzarr_simt_switch(&own_stack_pointer, fiber->stack_pointer);
#else
    swapcontext(&own_context, &fiber->context);
#endif
    __sanitizer_finish_switch_fiber(own_fake_stack, nullptr, nullptr);
    current = nullptr;
}

void Scheduler::leave(bool for_ever) {
    Fiber* fiber = current;
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &fiber->fake_stack, own_stack, own_stack_bytes);
#if defined(__x86_64__)
    cuzarr_simt_switch(&fiber->stack_pointer, own_stack_pointer);
#else
    swapcontext(&fiber->context, &own_context);
#endif
    __sanitizer_finish_switch_fiber(fiber->fake_stack, nullptr, nullptr);
}

Fiber* Scheduler::take() {
    Fiber* fiber;
    if (unused.empty()) {
        pool.push_back(std::make_unique<Fiber>());
        fiber = pool.back().get();
        void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) {
            std::fprintf(stderr, "simt: no memory for the stack of a fiber\n");
            std::abort();
        }
        fiber->stack = static_cast<char*>(stack);
        fiber->stack_place = pool.size() % kStackPlaces * kStackStepBytes;
    } else {
        fiber = unused.back();
        unused.pop_back();
        // A fiber that was given up never returned from its frames, so their red zones are still marked.
        if (fiber->state != State::Done) __asan_unpoison_memory_region(fiber->stack, kStackBytes);
    }
    fiber->state = State::Ready;
    fiber->fake_stack = nullptr;
#if defined(__x86_64__)
    // The values that the switch pops: six registers and the address to return to, on a stack aligned as after a call.
    void** top = reinterpret_cast<void**>(fiber->stack + kStackBytes - 56 - fiber->stack_place);
    top[0] = nullptr;
    top[-1] = reinterpret_cast<void*>(fiber_main);
    for (int i = 2; i <= 7; ++i) top[-i] = nullptr;
    fiber->stack_pointer = top - 7;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes - fiber->stack_place;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, fiber_main, 0);
#endif
    return fiber;
}

void Scheduler::start(Block& block) {
    block.live = threads;
    block.in_warps.assign((threads + kWarp - 1) / kWarp, 0);
    for (u32 thread = 0; thread < threads; ++thread) {
        Fiber* fiber = take();
        fiber->block = &block;
        fiber->place = {thread, threads, block.index, blocks};
        block.threads.push_back(fiber);
    }
    block.ready = block.threads;
}

void Scheduler::release_barrier(Block& block) {
    // Threads that ended do not count, as on a GPU.
    if (block.at_barrier == 0 || block.at_barrier < block.live) return;
    for (Fiber* fiber : block.threads) {
        if (fiber->state != State::Barrier) continue;
        fiber->state = State::Ready;
        block.ready.push_back(fiber);
    }
    block.at_barrier = 0;
    moved = true;
}

int Scheduler::run() {
    std::vector<u32> pending(blocks);
    for (u32 i = 0; i < blocks; ++i) pending[i] = i;
    shuffle(pending);
    std::vector<std::unique_ptr<Block>> resident;
    std::vector<Fiber*> order;
    u64 idle = 0;
    while (!pending.empty() || !resident.empty()) {
        while (!pending.empty() && resident.size() < kResidentBlocks) {
            auto block = std::make_unique<Block>();
            block->index = pending.back();
            pending.pop_back();
            start(*block);
            resident.push_back(std::move(block));
        }
        shuffle(resident);
        moved = false;
        bool ran = false;
        for (auto& block : resident) {
            order.clear();
            order.swap(block->ready);
            shuffle(order);
            for (Fiber* fiber : order) {
                enter(fiber);
                ran = true;
                moved = moved || fiber->state != State::Ready;
            }
            release_barrier(*block);
        }
        for (size_t i = resident.size(); i-- > 0;) {
            if (resident[i]->live) continue;
            unused.insert(unused.end(), resident[i]->threads.begin(), resident[i]->threads.end());
            resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(i));
        }
        idle = moved ? 0 : idle + 1;
        if (idle > kPatience || (!ran && !moved)) {
            error = ran ? "threads spin for ever" : "deadlock: threads wait at barriers or warp operations that others left out";
            for (auto& block : resident) unused.insert(unused.end(), block->threads.begin(), block->threads.end());
            return 1;
        }
    }
    return 0;
}

}  // namespace

/// Kernels that are compiled while tests run come while others are looked for.
std::mutex& naming() {
    static std::mutex mutex;
    return mutex;
}

void register_kernel(const char* name, void* function, Invoker invoker, const size_t* sizes, size_t count) {
    std::lock_guard<std::mutex> guard(naming());
    if (!kernels().emplace(name, Kernel{function, invoker, sizes, count}).second) {
        std::fprintf(stderr, "simt: two kernels are named %s\n", name);
        std::abort();
    }
}

__thread const Place* running = nullptr;

void barrier() {
    Fiber* self = scheduler->current;
    self->state = State::Barrier;
    ++self->block->at_barrier;
    scheduler->leave(false);
}

void yield() {
    Fiber* self = scheduler->current;
    self->block->ready.push_back(self);
    scheduler->leave(false);
}

void* shared(const void* key, size_t bytes) {
    auto& slot = scheduler->current->block->shared[key];
    if (!slot) {
        slot.reset(new char[bytes]);
        std::memset(slot.get(), kPoison, bytes);
    }
    return slot.get();
}

/// Gives each lane of an operation at which all are its result.
static void hand_out(WarpOperation operation, u32 lanes, Fiber* const* warp) {
    u64 votes = 0;
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        u32 lane = static_cast<u32>(__builtin_ctz(rest));
        votes |= static_cast<u64>(warp[lane]->value != 0) << lane;
    }
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        Fiber* fiber = warp[__builtin_ctz(rest)];
        u64 received = operation == WarpOperation::Ballot ? votes : 0;
        if (operation == WarpOperation::Shuffle && lanes >> fiber->from & 1) received = warp[fiber->from]->value;
        for (u32 others = operation == WarpOperation::Match ? lanes : 0; others; others &= others - 1) {
            u32 lane = static_cast<u32>(__builtin_ctz(others));
            received |= static_cast<u64>(warp[lane]->value == fiber->value) << lane;
        }
        fiber->received = received;
    }
}

u64 exchange(WarpOperation operation, u32 lanes, u64 value, u32 from) {
    Fiber* self = scheduler->current;
    Block& block = *self->block;
    u32 lane = self->place.thread % kWarp, first = self->place.thread - lane;
    if (!(lanes >> lane & 1)) {
        std::fprintf(stderr, "simt: a lane takes part in a warp operation that does not name it\n");
        std::abort();
    }
    self->operation = operation, self->lanes = lanes, self->value = value, self->from = from;
    self->state = State::Warp;
    u32& waiting = block.in_warps[first / kWarp];
    waiting |= 1u << lane;
    Fiber* const* warp = &block.threads[first];
    bool complete = (waiting & lanes) == lanes;
    for (u32 rest = complete ? lanes : 0; rest; rest &= rest - 1) {
        const Fiber* other = warp[__builtin_ctz(rest)];
        complete = complete && other->operation == operation && other->lanes == lanes;
    }
    if (!complete) {
        scheduler->leave(false);
        return self->received;
    }
    // The last to arrive goes on at once.
    hand_out(operation, lanes, warp);
    waiting &= ~lanes;
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        Fiber* fiber = warp[__builtin_ctz(rest)];
        fiber->state = State::Ready;
        if (fiber != self) block.ready.push_back(fiber);
    }
    scheduler->moved = true;
    return self->received;
}

}  // namespace simt

#define CUZARR_EXPORT extern "C" __attribute__((visibility("default")))

CUZARR_EXPORT void* cuzarr_simt_find(const char* name) {
    std::lock_guard<std::mutex> guard(simt::naming());
    auto found = simt::kernels().find(name);
    return found == simt::kernels().end() ? nullptr : &found->second;
}

/// How many parameters a kernel has; puts where their sizes are into `sizes`.
CUZARR_EXPORT size_t cuzarr_simt_parameters(void* kernel, const size_t** sizes) {
    *sizes = static_cast<simt::Kernel*>(kernel)->sizes;
    return static_cast<simt::Kernel*>(kernel)->count;
}

CUZARR_EXPORT int cuzarr_simt_launch(void* kernel, u32 blocks, u32 threads, u32 shared_bytes, void** arguments) {
    static thread_local std::unique_ptr<simt::Scheduler> own;
    if (!own) own = std::make_unique<simt::Scheduler>();
    simt::scheduler = own.get();
    simt::Scheduler& scheduler = *own;
    if (scheduler.current || threads > 1024 || shared_bytes != 0) {
        scheduler.error = "a launch that a GPU would refuse";
        return 1;
    }
    static u64 launches = 0;
    const char* seed = std::getenv("CUZARR_SIMT_SEED");
    u64 launch = __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    scheduler.random = ((seed ? std::strtoull(seed, nullptr, 10) : 1) + launch) * 0x9e3779b97f4a7c15ull | 1;
    scheduler.kernel = *static_cast<simt::Kernel*>(kernel);
    scheduler.arguments = arguments;
    scheduler.blocks = blocks;
    scheduler.threads = threads;
    return scheduler.run();
}

CUZARR_EXPORT const char* cuzarr_simt_last_error() { return simt::scheduler ? simt::scheduler->error.c_str() : ""; }
