#pragma once

#include <cstdint>
#include <string>

#include "actors/control/certificate_life.h"
#include "actors/control/pem.h"

/// Certificates, made.
namespace troupe::control {

/// What a certificate may do. A worker's is a client's only: it cannot pose as the head.
struct Role {
  std::string name;
  const char* constraints;
  const char* usage;
  const char* extended_usage;  ///< null: any
  std::int64_t lifetime_s = kClusterLifetimeS;
};

Role ca_role(std::string name);
Role head_role(std::int64_t lifetime_s);
Role worker_role(std::int64_t lifetime_s);

/// A certificate for `key`, signed by the issuer; without one, by itself. One that renews another
/// has its name. Null if OpenSSL fails.
CertificatePtr sign(const Role& role, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key,
                    const std::string& name = "");

/// See certificate_name: the serial number of the first of those that renewed each other, which the
/// later ones have in their subjects.
std::string name_of(X509* certificate);

}  // namespace troupe::control
