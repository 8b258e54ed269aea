#include "runtime/shared_object.h"

#include <dlfcn.h>

namespace troupe {

Result<SharedObject> SharedObject::open(const std::string& path, const std::string& advice) {
  SharedObject object;
  object.path_ = path;
  object.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (object.handle_) return object;
  const char* why = dlerror();
  return unavailable(path + " cannot be loaded (" + (why ? why : "no reason given") + "); " +
                     advice + ".");
}

bool SharedObject::find(const char* name, void** function) {
  *function = dlsym(handle_, name);
  if (!*function && missing_.empty()) missing_ = name;
  return *function != nullptr;
}

Status SharedObject::missing(const std::string& advice) const {
  if (missing_.empty()) return {};
  return unavailable(path_ + " lacks " + missing_ + "; " + advice + ".");
}

}  // namespace troupe
