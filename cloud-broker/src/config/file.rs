//! From the sections of a file to a [`Config`]. Pure but for the reading of key files, which is handed in.
//!
//! Decides which section a key may stand in, what a cluster inherits from `[Global]`, and whether the whole makes sense.
//! What one value means is in `values`, whether clusters are kept apart in `tenant`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::gcfg::{self, Diagnostic, Section};
use super::settings::{SETTINGS, Setting, closest};
use super::values::Reader;
use super::{Access, Cluster, Config, ConfigError};
use crate::tenant::{self, ClusterName, ClusterUids, Policy, PortRange, Scope, Tenant};

/// How old a machine list may be unless the file says otherwise: agents ask every 30 s, so an idle account is asked for
/// one list a minute.
const MACHINES_TTL: Duration = Duration::from_secs(55);

/// The keys of one section (or of several with the same name) as they are spelt.
#[derive(Default)]
pub(super) struct Spelling {
    /// Line of the first header.
    line: usize,
    keys: BTreeMap<&'static str, Spelt>,
}

/// One key with everything the file says about it.
#[derive(Clone)]
pub(super) struct Spelt {
    /// Its values; only the last counts unless it is a list.
    pub(super) values: Vec<Option<String>>,
    /// Line of the last one.
    pub(super) line: usize,
}

impl Spelling {
    pub(super) fn get(&self, key: &str) -> Option<&Spelt> {
        self.keys.get(key)
    }

    fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.keys.contains_key(key))
    }
}

/// Reads a configuration. `read` reads the files that it names; their paths are relative to the configuration's folder.
pub fn parse(
    path: &Path,
    source: &str,
    read: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Config, ConfigError> {
    let fail = |mut faults: Vec<Diagnostic>| {
        faults.sort_by_key(|fault| fault.line);
        faults.dedup();
        ConfigError {
            path: path.to_owned(),
            faults,
        }
    };
    let sections = gcfg::read(source).map_err(fail)?;
    let mut faults = Vec::new();
    let (global, mut clusters) = gather(sections, &mut faults);
    // The caller on the socket is served by [Global] alone only where no other cluster shares the file.
    if clusters.is_empty() {
        clusters.insert(
            ClusterName::of_the_socket(),
            Spelling {
                line: global.line,
                ..Spelling::default()
            },
        );
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut read_clusters = Vec::new();
    for (name, own) in &clusters {
        let mut reader = Reader::new(own, &global, folder, read);
        if let Some(cluster) = cluster(name, own, &mut reader) {
            read_clusters.push((own.line, cluster));
        }
        faults.append(&mut reader.into_faults());
    }
    if faults.is_empty() {
        faults = together(&read_clusters);
    }
    if !faults.is_empty() {
        return Err(fail(faults));
    }
    let by_name = read_clusters
        .into_iter()
        .map(|(_, cluster)| (cluster.tenant.cluster.clone(), cluster));
    Ok(Config {
        clusters: by_name.collect(),
    })
}

/// Sections with the same name are one. Unknown sections and keys are faults, as they are to the Go controller.
fn gather(
    sections: Vec<Section>,
    faults: &mut Vec<Diagnostic>,
) -> (Spelling, BTreeMap<ClusterName, Spelling>) {
    let mut global = Spelling {
        line: 1,
        ..Spelling::default()
    };
    let mut clusters: BTreeMap<ClusterName, Spelling> = BTreeMap::new();
    for section in sections {
        let (target, is_cluster) = match (section.name.as_str(), &section.subsection) {
            ("global", None) => (&mut global, false),
            ("cluster", Some(name)) if !name.trim().is_empty() => {
                let spelling = Spelling {
                    line: section.line,
                    ..Spelling::default()
                };
                (
                    clusters.entry(ClusterName::new(name.trim())).or_insert(spelling),
                    true,
                )
            }
            ("cluster", _) => {
                let text = "a [Cluster] section without a name";
                faults.push(Diagnostic::new(section.line, text, "write [Cluster \"name\"]"));
                continue;
            }
            (name, _) => {
                let text = if gcfg::may_be_shown(name) {
                    format!("unknown section [{name}]")
                } else {
                    "unknown section".into()
                };
                faults.push(Diagnostic::new(
                    section.line,
                    text,
                    "there are [Global] and [Cluster \"name\"]",
                ));
                continue;
            }
        };
        for entry in section.entries {
            match known(&entry.key, is_cluster) {
                Ok(setting) => {
                    let spelt = target.keys.entry(setting.name).or_insert(Spelt {
                        values: Vec::new(),
                        line: 0,
                    });
                    spelt.values.push(entry.value);
                    spelt.line = entry.line;
                }
                Err((text, hint)) => faults.push(Diagnostic::new(entry.line, text, hint)),
            }
        }
    }
    (global, clusters)
}

/// The setting, or what is wrong with the key and what to do.
fn known(key: &str, in_cluster: bool) -> Result<&'static Setting, (String, String)> {
    match Setting::named(key) {
        Some(setting) if setting.fits(in_cluster) => Ok(setting),
        Some(_) => Err((
            format!("{key} may not stand in [Global]"),
            "put it into a [Cluster \"name\"] section; \"default\" is the cluster of the Unix socket".into(),
        )),
        None => {
            let names = SETTINGS
                .iter()
                .filter(|setting| setting.fits(in_cluster))
                .map(|setting| setting.name);
            let hint = closest(key, names).map_or(String::new(), |name| format!("did you mean {name}?"));
            let text = if gcfg::may_be_shown(key) {
                format!("unknown key {key}")
            } else {
                "unknown key".into()
            };
            Err((text, hint))
        }
    }
}

fn cluster(name: &ClusterName, own: &Spelling, reader: &mut Reader<'_>) -> Option<Cluster> {
    let defaults = Policy::default();
    let access = access(own, reader);
    let zones = reader.names("zones", "zone");
    let tenant = Tenant {
        cluster: name.clone(),
        scope: Scope {
            project: reader.project("project-id"),
            zones,
            networks: reader.names("networks", ""),
            machines: reader.machines("machines").unwrap_or_default(),
        },
        policy: Policy {
            member_ports: reader
                .ports("member-ports")
                .unwrap_or_else(|| PortRange::usual(name)),
            max_public_ips: reader.count("max-public-ips"),
            allowed_addresses: reader.addresses("allowed-addresses"),
            address_sharing: reader
                .sharing("address-sharing")
                .unwrap_or(defaults.address_sharing),
            take_over: reader.flag("take-over").unwrap_or(defaults.take_over),
            tighten_on_adopt: defaults.tighten_on_adopt,
            share: reader.positive("share").unwrap_or(defaults.share),
        },
        uids: uids(name, own, reader),
        region: reader.text("region"),
    };
    let identities = reader.identities("identity");
    let machines_ttl = reader.duration("vm-cache-ttl").unwrap_or(MACHINES_TTL);
    Some(Cluster {
        tenant,
        identities,
        access: access?,
        machines_ttl,
    })
}

/// The UID of `[Global]` belongs to the default cluster: several clusters can't have one UID.
fn uids(name: &ClusterName, own: &Spelling, reader: &mut Reader<'_>) -> ClusterUids {
    let key = match (own.get("uid"), own.get("cluster-uid")) {
        (Some(uid), Some(_)) => {
            reader.fault(
                uid.line,
                "both uid and cluster-uid",
                "they mean the same; keep one of them",
            );
            return ClusterUids::default();
        }
        (Some(_), None) => "uid",
        (None, Some(_)) => "cluster-uid",
        (None, None) if name.as_str() == ClusterName::DEFAULT => "cluster-uid",
        (None, None) => return ClusterUids::default(),
    };
    reader.uids(key)
}

fn access(own: &Spelling, reader: &mut Reader<'_>) -> Option<Access> {
    // Keys come in pairs: a section that has one of its own takes nothing of the other from [Global].
    let own_keys = own.has_any(&["api-key", "api-key-file", "secret-key", "secret-key-file"]);
    let line = own.line;
    let url = reader.url("api-url");
    if url.is_none() && !reader.has("api-url") {
        reader.fault(
            line,
            "api-url is missing",
            "give the API's address, such as https://cloud.example/client/api",
        );
    }
    let api_key = reader.secret("api-key", "api-key-file", own_keys, line);
    let secret_key = reader.secret("secret-key", "secret-key-file", own_keys, line);
    let skip_verification = reader.flag("ssl-no-verify").unwrap_or(false);
    let authorities = reader.authorities("ca-file");
    let version = reader.version("version");
    let calls_per_second = reader.rate("api-rate-limit-qps");
    let burst = reader
        .positive("api-rate-limit-burst")
        .map(std::num::NonZero::get);
    let (url, api_key, secret_key) = (url?, api_key?, secret_key?);
    Some(Access {
        url,
        api_key,
        secret_key,
        skip_verification,
        authorities,
        version,
        calls_per_second,
        burst,
    })
}

/// What only shows when all clusters are seen together.
fn together(clusters: &[(usize, Cluster)]) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    for (position, (line, cluster)) in clusters.iter().enumerate() {
        for (other_line, other) in clusters.iter().take(position) {
            let same_account = cluster.access.is_same_account(&other.access);
            for found in tenant::entanglements(&cluster.tenant, &other.tenant, same_account) {
                let line = if found.cluster == other.tenant.cluster {
                    *other_line
                } else {
                    *line
                };
                faults.push(Diagnostic::new(line, found.text, found.hint));
            }
            let shared = cluster.identities.iter().find(|identity| {
                other
                    .identities
                    .iter()
                    .any(|theirs| is_one_identity(identity, theirs))
            });
            if let Some(identity) = shared {
                let text = format!(
                    "identity {identity} stands for {} and for {}",
                    other.tenant.cluster, cluster.tenant.cluster
                );
                faults.push(Diagnostic::new(*line, text, "an identity names one cluster"));
            }
        }
    }
    faults
}

/// Two spellings of one name are one name, as they are to those who identify callers.
fn is_one_identity(one: &str, other: &str) -> bool {
    tenant::normal_identity(one) == tenant::normal_identity(other)
}

#[cfg(test)]
mod tests;
