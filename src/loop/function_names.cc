// SPDX-License-Identifier: Apache-2.0
#include "loop/function_names.h"

#include "loop/readable_name.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <initializer_list>
#include <string_view>

#if defined(MILLRACE_HAVE_LIBDW)
#include <cstdlib>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <memory>
#include <unistd.h>
#endif

namespace millrace {

namespace {

std::string_view fileName(std::string_view path) noexcept {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool startsWithOneOf(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [text](std::string_view each) { return text.starts_with(each); });
}

// The qualified name without what stands before it: in "_ZNK8millrace4Task..." that is
// "8millrace...".
std::string_view withoutPrefix(std::string_view function) noexcept {
  if (!function.starts_with("_Z")) return function;
  function.remove_prefix(2);
  // Local names, nested names, const, volatile, &, &&.
  while (!function.empty() &&
         std::string_view("ZNKVRO").find(function[0]) != std::string_view::npos) {
    function.remove_prefix(1);
  }
  return function;
}

bool isOurs(const CodePlace& place) {
  return startsWithOneOf(withoutPrefix(place.function), {"8millrace", "millrace::"});
}

// What runs a Task or a std::function.
bool callsUsers(const CodePlace& place) {
  return startsWithOneOf(withoutPrefix(place.function),
                         {"8millrace4Task", "St17_Function_handler"});
}

// The interceptors of a sanitizer carry the names of libc's functions.
bool isNameOfLibc(const std::string& function) {
  static void* const libc = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return libc != nullptr && ::dlsym(libc, function.c_str()) != nullptr;
}

bool isTheSystems(const CodePlace& place) {
  if (startsWithOneOf(fileName(place.module),
                      {"libc.", "libc-", "libpthread", "ld-", "libstdc++", "libc++", "libgcc_s",
                       "linux-vdso", "[vdso", "libasan", "libtsan", "libubsan"})) {
    return true;
  }
  if (place.function.empty()) return false;
  if (!place.function.starts_with("_Z")) {
    return startsWithOneOf(place.function, {"__", "std::"}) || isNameOfLibc(place.function);
  }
  return startsWithOneOf(withoutPrefix(place.function),
                         {"St", "Sa", "Ss", "Si", "So", "9__gnu_cxx", "10__cxxabiv1", "6__tsan",
                          "6__asan", "7__ubsan", "11__sanitizer", "14__interception"});
}

}  // namespace

std::string CodePlace::text() const {
  if (!function.empty()) return readableName(function.c_str());
  std::array<char, 2 * sizeof offset> digits{};
  std::size_t at = digits.size();
  std::uintptr_t rest = offset;
  do {
    digits[--at] = "0123456789abcdef"[rest & 15];
    rest >>= 4;
  } while (rest != 0);
  const std::string_view file = module.empty() ? "?" : fileName(module);
  return std::string(file) + "+0x" + std::string(digits.data() + at, digits.size() - at);
}

std::vector<CodePlace> exportedPlacesOf(const std::vector<std::uintptr_t>& addresses) {
  std::vector<CodePlace> places;
  for (const std::uintptr_t address : addresses) {
    CodePlace& place = places.emplace_back();
    place.offset = address;
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(address), &info) == 0) continue;
    place.module = info.dli_fname;
    place.offset = address - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    if (info.dli_sname != nullptr) place.function = info.dli_sname;
  }
  return places;
}

const CodePlace* blockingFunction(const std::vector<CodePlace>& stack) {
  const CodePlace* before = nullptr;  // the one that the place at hand calls
  const CodePlace* byUser = nullptr;  // called by a user's callable that became part of its caller
  const CodePlace* notSystem = nullptr;  // the innermost that is not the system's
  for (const CodePlace& place : stack) {
    const bool isSystem = isTheSystems(place);
    if (!isSystem && !isOurs(place)) return &place;
    if (!isSystem && notSystem == nullptr) notSystem = &place;
    if (byUser == nullptr && callsUsers(place)) byUser = before;
    before = &place;
  }
  if (byUser != nullptr) return byUser;
  return notSystem != nullptr ? notSystem : before;
}

#if defined(MILLRACE_HAVE_LIBDW)

namespace {

struct Release {
  void operator()(Dwfl* session) const noexcept { ::dwfl_end(session); }
  void operator()(Dwarf_Die* dies) const noexcept { std::free(dies); }  // NOLINT: libdw's malloc
};
using Session = std::unique_ptr<Dwfl, Release>;
using Dies = std::unique_ptr<Dwarf_Die, Release>;

// Debug information comes from the files themselves. The standard search may ask servers.
int noSeparateDebugFile(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                        GElf_Word, char**) {
  return -1;
}

Session openOwnProcess() {
  static constexpr Dwfl_Callbacks kCallbacks{.find_elf = &::dwfl_linux_proc_find_elf,
                                             .find_debuginfo = &noSeparateDebugFile,
                                             .section_address = nullptr,
                                             .debuginfo_path = nullptr};
  Session session(::dwfl_begin(&kCallbacks));
  if (!session || ::dwfl_linux_proc_report(session.get(), ::getpid()) != 0 ||
      ::dwfl_report_end(session.get(), nullptr, nullptr) != 0) {
    return nullptr;
  }
  return session;
}

// The name of a function by its debug entry: the linker's, or put together from its scopes.
std::string nameOf(Dwarf_Die& die) {
  Dwarf_Attribute attribute{};
  if (::dwarf_attr_integrate(&die, DW_AT_linkage_name, &attribute) != nullptr) {
    if (const char* name = ::dwarf_formstring(&attribute); name != nullptr) return name;
  }
  const char* bare = ::dwarf_diename(&die);
  std::string name = bare == nullptr ? "" : bare;
  // From the place where it was inlined to its source, and on to its declaration in a class.
  Dwarf_Die declared = die;
  for (const unsigned step : {DW_AT_abstract_origin, DW_AT_specification}) {
    Dwarf_Die next{};
    if (::dwarf_attr(&declared, step, &attribute) == nullptr) continue;
    if (::dwarf_formref_die(&attribute, &next) != nullptr) declared = next;
  }
  Dwarf_Die* found = nullptr;
  const int count = ::dwarf_getscopes_die(&declared, &found);
  const Dies scopes(found);
  for (int i = 1; i < count; ++i) {
    const int tag = ::dwarf_tag(found + i);
    if (tag == DW_TAG_lexical_block || tag == DW_TAG_compile_unit) continue;
    const char* scope = ::dwarf_diename(found + i);
    const char* unnamed = tag == DW_TAG_namespace ? "(anonymous namespace)" : "{lambda}";
    name.insert(0, std::string(scope != nullptr ? scope : unnamed) + "::");
  }
  return name;
}

// Functions that were inlined at the address, innermost first.
std::vector<std::string> inlinedAt(Dwfl_Module& module, Dwarf_Addr address) {
  std::vector<std::string> names;
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = ::dwfl_module_addrdie(&module, address, &bias);
  if (unit == nullptr) return names;
  Dwarf_Die* found = nullptr;
  if (::dwarf_getscopes(unit, address - bias, &found) <= 0) return names;
  const Dies scopes(found);
  // The scopes of an inlined function are those of its source; those of its place are asked for.
  Dwarf_Die* chain = nullptr;
  const int count = ::dwarf_getscopes_die(found, &chain);
  const Dies places(chain);
  for (int i = 0; i < count && ::dwarf_tag(chain + i) != DW_TAG_subprogram; ++i) {
    if (::dwarf_tag(chain + i) != DW_TAG_inlined_subroutine) continue;
    std::string name = nameOf(chain[i]);
    // With little debug information the scopes are missing; then this could be anybody's.
    if (name != "operator()") names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

bool canNameEveryFunction() noexcept { return true; }

std::vector<CodePlace> placesOf(const std::vector<std::uintptr_t>& addresses) {
  const Session session = openOwnProcess();
  if (!session) return exportedPlacesOf(addresses);
  std::vector<CodePlace> places;
  for (const std::uintptr_t address : addresses) {
    CodePlace place;
    place.offset = address;
    if (Dwfl_Module* module = ::dwfl_addrmodule(session.get(), address); module != nullptr) {
      Dwarf_Addr start = 0;
      const char* file =
          ::dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
      if (file != nullptr) place.module = file;
      place.offset = address - start;
      for (std::string& name : inlinedAt(*module, address)) {
        places.push_back({std::move(name), place.module, place.offset});
      }
      if (const char* name = ::dwfl_module_addrname(module, address); name != nullptr) {
        place.function = name;
      }
    }
    places.push_back(std::move(place));
  }
  return places;
}

#else

bool canNameEveryFunction() noexcept { return false; }

std::vector<CodePlace> placesOf(const std::vector<std::uintptr_t>& addresses) {
  return exportedPlacesOf(addresses);
}

#endif

}  // namespace millrace
