//! The keys of the configuration file: one table for the reader, the suggestions and the documentation. Pure.

/// A key of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub place: Place,
    /// Whether it may be repeated, and its value be several words.
    pub is_list: bool,
    /// What holds without it.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In `[Global]`, and in a `[Cluster "name"]` section, which wins.
    Both,
    /// In a `[Cluster "name"]` section only.
    Cluster,
}

const fn one(name: &'static str, place: Place, default: &'static str, meaning: &'static str) -> Setting {
    Setting {
        name,
        place,
        is_list: false,
        default,
        meaning,
    }
}

const fn list(name: &'static str, place: Place, default: &'static str, meaning: &'static str) -> Setting {
    Setting {
        name,
        place,
        is_list: true,
        default,
        meaning,
    }
}

/// All keys, in the order of the documentation.
pub(super) const SETTINGS: [Setting; 26] = [
    one(
        "api-url",
        Place::Both,
        "required",
        "address of the API, such as https://cloud.example/client/api",
    ),
    one("api-key", Place::Both, "required", "API key of the user"),
    one("secret-key", Place::Both, "required", "secret key of the user"),
    one(
        "api-key-file",
        Place::Both,
        "",
        "file with the API key, instead of api-key; read again when it changes",
    ),
    one(
        "secret-key-file",
        Place::Both,
        "",
        "file with the secret key, instead of secret-key; read again when it changes",
    ),
    one(
        "ca-file",
        Place::Both,
        "",
        "PEM file with authorities that may have signed the API's certificate",
    ),
    one(
        "ssl-no-verify",
        Place::Both,
        "false",
        "accept any certificate of the API; use ca-file instead where you can",
    ),
    one(
        "project-id",
        Place::Both,
        "",
        "id of the project that the cluster lives in",
    ),
    one(
        "zone",
        Place::Both,
        "",
        "name or id of the only zone to look at; the same as zones with one word",
    ),
    list(
        "zones",
        Place::Both,
        "every zone",
        "names or ids of the zones to look at",
    ),
    one("region", Place::Both, "", "region that nodes are labelled with"),
    one(
        "version",
        Place::Both,
        "asked of the server",
        "version of the server, where the key may not ask it",
    ),
    one(
        "api-rate-limit-qps",
        Place::Both,
        "50, or what the server grants",
        "calls per second of all clusters that share the keys",
    ),
    one(
        "api-rate-limit-burst",
        Place::Both,
        "twice the rate",
        "calls at once of all clusters that share the keys",
    ),
    one(
        "vm-cache-ttl",
        Place::Both,
        "55",
        "how old a machine list may be: seconds, or a duration such as 1m30s",
    ),
    list(
        "cluster-uid",
        Place::Both,
        "UID of namespace kube-system",
        "UID that marks the cluster's objects; further ones are recognised; of [Global] it is for the default cluster only",
    ),
    list(
        "uid",
        Place::Cluster,
        "UID of namespace kube-system; required of clusters that share keys",
        "the same as cluster-uid",
    ),
    list(
        "identity",
        Place::Cluster,
        "",
        "URIs or DNS names of the client certificates that stand for the cluster",
    ),
    list(
        "networks",
        Place::Cluster,
        "every network",
        "names or ids of the networks that the cluster may use",
    ),
    one(
        "machines",
        Place::Cluster,
        "every machine",
        "pattern of machine names such as prod-*, or a tag as tag:key=value",
    ),
    one(
        "member-ports",
        Place::Cluster,
        "30000-32767; of the cluster of the Unix socket 1-65535",
        "node ports that balancers may send to",
    ),
    one(
        "max-public-ips",
        Place::Cluster,
        "unlimited",
        "most public addresses of the cluster",
    ),
    list(
        "allowed-addresses",
        Place::Cluster,
        "all",
        "addresses or networks that may be used",
    ),
    one(
        "address-sharing",
        Place::Cluster,
        "cluster",
        "which Services may share an address: cluster, namespace or none",
    ),
    one(
        "take-over",
        Place::Cluster,
        "true",
        "adopt the balancers of the controllers that were there before",
    ),
    one(
        "share",
        Place::Cluster,
        "1",
        "weight among the clusters that share the keys",
    ),
];

impl Setting {
    /// The setting with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Whether it may stand in this sort of section.
    pub(super) fn fits(&self, cluster: bool) -> bool {
        match self.place {
            Place::Both => true,
            Place::Cluster => cluster,
        }
    }
}

/// The name that was probably meant.
pub(super) fn closest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    names
        .map(|name| (distance(word, name), name))
        .filter(|(distance, name)| *distance <= allowed || name.strip_suffix("-id") == Some(word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters must be changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX - 1);
            let change = at(&row, j) + usize::from(x != *y);
            next.push(change.min(at(&row, j + 1) + 1).min(at(&next, j) + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// The table of all keys, for the documentation (Markdown).
pub fn reference() -> String {
    let row = |setting: &Setting| {
        let place = match setting.place {
            Place::Both => "Global, Cluster",
            Place::Cluster => "Cluster",
        };
        let Setting {
            name,
            default,
            meaning,
            ..
        } = setting;
        let several = if setting.is_list { " (list)" } else { "" };
        format!("| `{name}`{several} | {place} | {default} | {meaning} |\n")
    };
    let head = "| key | section | default | meaning |\n| --- | --- | --- | --- |\n";
    std::iter::once(head.to_owned())
        .chain(SETTINGS.iter().map(row))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("api-ulr", Some("api-url"))]
    #[case("secretkey", Some("secret-key"))]
    #[case("project", Some("project-id"))]
    #[case("network", Some("networks"))]
    #[case("colour", None)]
    fn a_misspelt_key_is_recognised(#[case] word: &str, #[case] meant: Option<&str>) {
        assert_eq!(closest(word, SETTINGS.iter().map(|setting| setting.name)), meant);
    }

    #[test]
    fn every_key_has_one_row_in_the_reference() {
        let text = reference();
        for setting in &SETTINGS {
            assert_eq!(
                text.matches(&format!("| `{}`", setting.name)).count(),
                1,
                "{}",
                setting.name
            );
        }
    }
}
