// Stands in for nanobind, so that the kernels' sources compile and run without Python: as much of its interface as they
// use. What they bind is kept by name, and `nanobind::Module::function` finds it for the stress driver to call.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <typeindex>
#include <utility>

namespace nanobind {

struct arg {
    explicit arg(const char*) {}
    arg noconvert() const { return *this; }
    arg none() const { return *this; }
};

struct gil_scoped_release {
    gil_scoped_release() {}
};
template <typename...>
struct call_guard {};
template <typename...>
struct init {};

class module_ {
public:
    template <typename Result, typename... Arguments, typename... Extra>
    module_& def(const char* name, Result (*function)(Arguments...), const Extra&...) {
        using Type = Result(Arguments...);
        functions_.emplace(name, std::make_pair(std::type_index(typeid(Type)), reinterpret_cast<void (*)()>(function)));
        return *this;
    }

    // The bound function of this name, which must have exactly this type.
    template <typename Type>
    Type* function(const char* name) const {
        const auto found = functions_.find(name);
        if (found == functions_.end()) throw std::logic_error(std::string(name) + " is not bound");
        if (found->second.first != typeid(Type)) throw std::logic_error(std::string(name) + " has another type");
        return reinterpret_cast<Type*>(found->second.second);
    }

private:
    std::map<std::string, std::pair<std::type_index, void (*)()>> functions_;
};

template <typename>
class class_ {
public:
    class_(module_&, const char*) {}
    template <typename... Anything>
    class_& def(const Anything&...) {
        return *this;
    }
};

template <typename Enum>
class enum_ {
public:
    template <typename Scope>
    enum_(Scope&, const char*) {}
    enum_& value(const char*, Enum) { return *this; }
};

}  // namespace nanobind
