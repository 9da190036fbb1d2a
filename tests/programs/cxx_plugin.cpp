// Loaded by cxx_exceptions: throws its own and passes on others' exceptions.
// build: shared
#include <stdexcept>
#include <string>

struct Local {
    int *counter;
    explicit Local(int *c) : counter(c) { ++*counter; }
    ~Local() { --*counter; }
};

extern "C" void plugin_throw(int depth, int *counter)
{
    Local guard(counter);
    if (depth == 0)
        throw std::out_of_range("from the plugin");
    plugin_throw(depth - 1, counter);
}

extern "C" int plugin_call(int (*callback)(int), int value, int *counter)
{
    Local guard(counter);
    try {
        return callback(value);
    } catch (const std::string &s) {
        throw std::runtime_error("wrapped " + s);
    }
}
