/* Prints code addresses of its own, and where its code is mapped. */
#include <fstream>
#include <iostream>

namespace pool {
template <typename T> struct list {
    [[gnu::always_inline]] inline void *push(T) {
        void *pc;
        __asm__ volatile("lea 0f(%%rip), %0\n0: nop" : "=r"(pc)); /* PC */
        return pc;
    }
    [[gnu::noinline]] void *insert(T value) {
        void *pc = push(value); /* OUTER */
        __asm__ volatile("" ::: "memory");
        return pc;
    }
    [[gnu::noinline]] void *return_address() { return __builtin_return_address(0); }
    [[gnu::noinline]] void *call() {
        void *address = return_address(); /* CALL */
        __asm__ volatile("" ::: "memory");
        return address;
    }
};
} // namespace pool

int main() {
    pool::list<int> list;
    std::cout << "pc " << list.insert(1) << "\nreturn " << list.call() << "\n";
    std::cout << std::ifstream("/proc/self/maps").rdbuf();
}
