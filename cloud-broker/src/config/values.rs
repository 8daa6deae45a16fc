//! What one value of the configuration file means. Pure but for the reading of files, which is handed in.
//!
//! A value that can't be read becomes a fault with its line, and the reading goes on. Faults name the key and the form
//! that is expected; values are shown only where they can't be secrets.

use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use runtime::flags::GoDuration;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use url::Url;

use super::file::{Spelling, Spelt};
use super::gcfg::Diagnostic;
use crate::cloudstack::types::{ProjectId, Version};
use crate::tenant::{
    AddressSharing, AllowedAddresses, ClusterUid, ClusterUids, Machines, NameOrId, Pattern, PortRange,
};

/// Reads the values of one cluster: its own, else those of `[Global]`.
pub(super) struct Reader<'r> {
    own: &'r Spelling,
    global: &'r Spelling,
    folder: &'r Path,
    read: &'r dyn Fn(&Path) -> io::Result<Vec<u8>>,
    faults: Vec<Diagnostic>,
}

impl<'r> Reader<'r> {
    pub(super) fn new(
        own: &'r Spelling,
        global: &'r Spelling,
        folder: &'r Path,
        read: &'r dyn Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Self {
        Self {
            own,
            global,
            folder,
            read,
            faults: Vec::new(),
        }
    }

    pub(super) fn into_faults(self) -> Vec<Diagnostic> {
        self.faults
    }

    pub(super) fn fault(&mut self, line: usize, text: impl Into<String>, hint: impl Into<String>) {
        self.faults.push(Diagnostic::new(line, text, hint));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.spelt(key).is_some()
    }

    fn spelt(&self, key: &str) -> Option<&'r Spelt> {
        self.own.get(key).or_else(|| self.global.get(key))
    }

    /// The last value with its line. A bare key has none, which is a fault for all but truth values; an empty value is as
    /// good as none.
    fn last(&mut self, key: &str) -> Option<(&'r str, usize)> {
        let spelt = self.spelt(key)?;
        match spelt.values.last()? {
            None => {
                self.fault(
                    spelt.line,
                    format!("{key} has no value"),
                    format!("write {key} = ..."),
                );
                None
            }
            Some(value) if value.is_empty() => None,
            Some(value) => Some((value, spelt.line)),
        }
    }

    /// Reads the last value, or says what was expected.
    fn value<T>(&mut self, key: &str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let (value, line) = self.last(key)?;
        let parsed = parse(value);
        if parsed.is_none() {
            self.fault(
                line,
                format!("{key} can't be read"),
                format!("expected is {expected}"),
            );
        }
        parsed
    }

    /// All words of all values of a list. Words are separated by commas or, in lists of things without blanks in their
    /// names, by blanks.
    fn words(&mut self, key: &str, separators: &[char]) -> Vec<(&'r str, usize)> {
        let Some(spelt) = self.spelt(key) else {
            return Vec::new();
        };
        let mut words = Vec::new();
        for value in &spelt.values {
            let Some(value) = value else {
                self.fault(
                    spelt.line,
                    format!("{key} has no value"),
                    format!("write {key} = ..."),
                );
                continue;
            };
            words.extend(
                value
                    .split(separators)
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(|word| (word, spelt.line)),
            );
        }
        words
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.last(key).map(|(value, _)| value.to_owned())
    }

    /// gcfg's words for truth values, in any case; a bare key is true.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        let spelt = self.spelt(key)?;
        if spelt.values.last()?.is_none() {
            return Some(true);
        }
        self.value(key, "true or false", |value| {
            match value.to_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some(true),
                "false" | "no" | "off" | "0" => Some(false),
                _ => None,
            }
        })
    }

    pub(super) fn count(&mut self, key: &str) -> Option<u32> {
        self.value(key, "a whole number", |value| value.parse().ok())
    }

    pub(super) fn positive(&mut self, key: &str) -> Option<NonZeroU32> {
        self.value(key, "a whole number above 0", |value| value.parse().ok())
    }

    pub(super) fn rate(&mut self, key: &str) -> Option<f64> {
        self.value(key, "a number above 0", |value| {
            value
                .parse()
                .ok()
                .filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        })
    }

    /// Whole seconds, as Leaseweb's controller writes them, or a duration in Go's notation.
    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        self.value(key, "a number of seconds or a duration such as 1m30s", |value| {
            let seconds = value.parse().ok().map(Duration::from_secs);
            seconds.or_else(|| value.parse::<GoDuration>().ok().map(GoDuration::get))
        })
    }

    pub(super) fn version(&mut self, key: &str) -> Option<Version> {
        self.value(key, "a version such as 4.20.1", Version::parse)
    }

    pub(super) fn project(&mut self, key: &str) -> Option<ProjectId> {
        self.value(key, "the id of a project (a UUID, not its name)", |value| {
            ProjectId::parse(value).ok()
        })
    }

    pub(super) fn url(&mut self, key: &str) -> Option<Url> {
        self.value(
            key,
            "an address such as https://cloud.example/client/api, without user, password or query",
            |value| {
                let url = Url::parse(value).ok()?;
                let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
                (matches!(url.scheme(), "http" | "https") && url.has_host() && plain).then_some(url)
            },
        )
    }

    pub(super) fn sharing(&mut self, key: &str) -> Option<AddressSharing> {
        self.value(key, "cluster, namespace or none", |value| {
            AddressSharing::from_word(&value.to_lowercase())
        })
    }

    pub(super) fn ports(&mut self, key: &str) -> Option<PortRange> {
        self.value(key, "a range such as 30000-32767", |value| {
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            PortRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?)
        })
    }

    pub(super) fn machines(&mut self, key: &str) -> Option<Machines> {
        self.value(
            key,
            "a pattern such as prod-*, or a tag such as tag:cluster=prod",
            |value| {
                let Some(tag) = value.strip_prefix("tag:") else {
                    return Some(Machines::Named(Pattern::new(value)));
                };
                let (key, value) = tag.split_once('=')?;
                let (key, value) = (key.trim(), value.trim());
                (!key.is_empty() && !value.is_empty()).then(|| Machines::Tagged {
                    key: key.into(),
                    value: value.into(),
                })
            },
        )
    }

    /// Names or ids: of the list, else of the key that has only one.
    pub(super) fn names(&mut self, list: &str, single: &str) -> Vec<NameOrId> {
        let words = self.words(list, &[',']);
        if words.is_empty() {
            return self
                .last(single)
                .map(|(word, _)| NameOrId::new(word))
                .into_iter()
                .collect();
        }
        words.into_iter().map(|(word, _)| NameOrId::new(word)).collect()
    }

    pub(super) fn addresses(&mut self, key: &str) -> AllowedAddresses {
        let mut networks = Vec::new();
        for (word, line) in self.words(key, &[',', ' ', '\t']) {
            let network = word
                .parse::<IpNet>()
                .ok()
                .or_else(|| word.parse::<std::net::IpAddr>().ok().map(IpNet::from));
            match network {
                Some(network) => networks.push(network.trunc()),
                None => self.fault(
                    line,
                    format!("{key}: {word} is neither an address nor a network"),
                    "write 192.0.2.7 or 192.0.2.0/24",
                ),
            }
        }
        AllowedAddresses::of(networks)
    }

    pub(super) fn identities(&mut self, key: &str) -> Vec<String> {
        let words = self.words(key, &[',', ' ', '\t']);
        let mut identities = Vec::new();
        for (word, line) in words {
            if word.contains('*') {
                self.fault(
                    line,
                    format!("{key}: {word} has a wildcard"),
                    "name each certificate's URI or DNS name in full",
                );
            } else {
                identities.push(word.to_owned());
            }
        }
        identities
    }

    pub(super) fn uids(&mut self, key: &str) -> ClusterUids {
        let mut uids = Vec::new();
        for (word, line) in self.words(key, &[',', ' ', '\t']) {
            match ClusterUid::new(word) {
                Some(uid) => uids.push(uid),
                None => self.fault(
                    line,
                    format!("{key}: {word} is no UID"),
                    "use letters, digits, dots and dashes, at most 64",
                ),
            }
        }
        ClusterUids::configured(uids)
    }

    /// A secret that stands in the file, or in a file of its own. `own_only` leaves `[Global]` out.
    pub(super) fn secret(
        &mut self,
        key: &str,
        file_key: &str,
        own_only: bool,
        line: usize,
    ) -> Option<SecretString> {
        let global = self.global;
        if own_only {
            self.global = self.own;
        }
        let found = self.secret_here(key, file_key, line);
        self.global = global;
        found
    }

    fn secret_here(&mut self, key: &str, file_key: &str, line: usize) -> Option<SecretString> {
        // The section's own spelling wins, whichever of the two it is.
        let own_value = self.own.get(key).is_some();
        let own_file = self.own.get(file_key).is_some();
        if (own_value && own_file) || (!own_value && !own_file && self.has(key) && self.has(file_key)) {
            let at = self.spelt(file_key).map_or(line, |spelt| spelt.line);
            self.fault(at, format!("both {key} and {file_key}"), "keep one of them");
            return None;
        }
        let use_file = own_file || (!own_value && self.has(file_key));
        if use_file {
            let (path, at) = self.last(file_key)?;
            return self.secret_file(file_key, path, at);
        }
        if let Some((value, _)) = self.last(key) {
            return Some(SecretString::from(value));
        }
        if !self.has(key)
            || self
                .spelt(key)
                .is_some_and(|spelt| spelt.values.last() == Some(&Some(String::new())))
        {
            let at = self.spelt(key).map_or(line, |spelt| spelt.line);
            self.fault(
                at,
                format!("{key} is missing"),
                format!("give {key} or {file_key}"),
            );
        }
        None
    }

    fn secret_file(&mut self, key: &str, path: &str, line: usize) -> Option<SecretString> {
        let shown = shown_path(path);
        let bytes = self.file(key, (path, shown), line)?;
        let text = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
        if text.is_empty() || text.contains(char::is_whitespace) {
            self.fault(
                line,
                format!("{key}: {shown} does not hold one key"),
                "put nothing but the key into it",
            );
            return None;
        }
        Some(SecretString::from(text))
    }

    pub(super) fn authorities(&mut self, key: &str) -> Option<Vec<u8>> {
        let (path, line) = self.last(key)?;
        let bytes = self.file(key, (path, path), line)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        if certificates.is_ok_and(|certificates| !certificates.is_empty()) {
            return Some(bytes);
        }
        self.fault(
            line,
            format!("{key}: {path} holds no certificate in PEM form"),
            "it begins with -----BEGIN CERTIFICATE-----",
        );
        None
    }

    fn file(&mut self, key: &str, (path, shown): (&str, &str), line: usize) -> Option<Vec<u8>> {
        match (self.read)(&self.folder.join(path)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.fault(
                    line,
                    format!("{key}: {shown} can't be read: {error}"),
                    "check path and permissions",
                );
                None
            }
        }
    }
}

/// A path for people, unless it may be a key that stands where the path of its file belongs: keys are long words, of characters
/// that Base64 has.
fn shown_path(path: &str) -> &str {
    const LONGEST: usize = 40;
    let is_rooted = path.starts_with(['/', '.']) && !path.contains(['+', '=']);
    let is_short = path.len() <= LONGEST || (is_rooted && path.split('/').all(|part| part.len() <= LONGEST));
    if is_short {
        path
    } else {
        "what stands there (it looks like a key, where the path of a file is expected)"
    }
}
