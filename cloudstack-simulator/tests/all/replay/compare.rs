//! Whether an answer agrees with a recorded one: fields, types and values, except what changes from run to run.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use uuid::Uuid;

/// Fields whose value changes from run to run; they must be there all the same.
const VOLATILE: &[&str] = &[
    "created",
    "jobid",
    "macaddress",
    "managementserverid",
    "managementservername",
    "completed",
    "lastupdated",
    "allocated",
    "removed",
    "uuid",
    "zonetoken",
    "jobinstanceid",
    "instancename",
    "hostname",
    "hostid",
    "bootsequence",
    "cpuused",
    "networkkbsread",
    "networkkbswrite",
    "diskkbsread",
    "diskkbswrite",
    "diskioread",
    "diskiowrite",
    "memoryintfreekbs",
    "memorykbs",
    "memorytargetkbs",
    "released",
    "end",
    "accesstime",
    "logid",
    "vlan",
    "broadcasturi",
    "isolationuri",
    "apikey",
    "secretkey",
    "expireAfter",
    "enddate",
    "extensionspath",
];

/// What is known about ids so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    seed: HashSet<String>,
    map: HashMap<String, String>,
}

impl Ids {
    /// Ids of the seed are the same on both sides.
    pub(crate) fn of_seed(ids: &Map<String, Value>) -> Self {
        Self {
            seed: ids
                .values()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            map: HashMap::new(),
        }
    }

    /// Our id of a recorded one.
    pub(crate) fn ours(&self, recorded: &str) -> Option<&String> {
        self.map.get(recorded)
    }

    /// Notes that two ids mean the same object.
    pub(crate) fn same(&mut self, recorded: &str, ours: &str) {
        self.map.insert(recorded.to_owned(), ours.to_owned());
    }

    /// Compares two bodies and learns ids from them. The result: what differs.
    pub(crate) fn compare(&mut self, recorded: &Value, ours: &Value, ordered: bool) -> Vec<String> {
        let mut differences = Vec::new();
        self.value(
            recorded,
            ours,
            &mut Path {
                ordered,
                names: Vec::new(),
            },
            &mut differences,
        );
        differences
    }

    fn value(&mut self, a: &Value, b: &Value, path: &mut Path, out: &mut Vec<String>) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => self.object(a, b, path, out),
            (Value::Array(a), Value::Array(b)) => self.array(a, b, path, out),
            (Value::String(a), Value::String(b)) => self.text(a, b, path, out),
            _ if a == b => {}
            // Numbers that the real server counts from its installation on.
            _ if path.text() == "simulatormock.null.id" => {}
            _ => out.push(format!("{}: {a} became {b}", path.text())),
        }
    }

    fn object(
        &mut self,
        a: &Map<String, Value>,
        b: &Map<String, Value>,
        path: &mut Path,
        out: &mut Vec<String>,
    ) {
        // An entry shows the job that works on it; whether one still does is a matter of milliseconds.
        let entry = path.is_entry();
        let racing = |name: &str| entry && (name == "jobid" || name == "jobstatus");
        for (name, value) in a {
            if racing(name) {
                continue;
            }
            match b.get(name) {
                None => out.push(format!("{}.{name}: missing", path.text())),
                Some(_) if VOLATILE.contains(&name.as_str()) => {}
                Some(other) => path.within(name, |path| self.value(value, other, path, out)),
            }
        }
        for name in b.keys().filter(|name| !a.contains_key(*name) && !racing(name)) {
            out.push(format!("{}.{name}: not in the recording", path.text()));
        }
    }

    fn array(&mut self, a: &[Value], b: &[Value], path: &mut Path, out: &mut Vec<String>) {
        if a.len() != b.len() {
            out.push(format!("{}: {} entries became {}", path.text(), a.len(), b.len()));
            return;
        }
        // Machines come in any order even where the order of others is fixed.
        let ordered = path.ordered && !path.names.iter().any(|name| name == "virtualmachine");
        let mut left: Vec<&Value> = b.iter().collect();
        for entry in a {
            let mut best: Option<(usize, Vec<String>, Self)> = None;
            let candidates = if ordered { left.len().min(1) } else { left.len() };
            for (at, other) in left.iter().enumerate().take(candidates) {
                let mut trial = self.clone();
                let mut differences = Vec::new();
                path.within("[]", |path| trial.value(entry, other, path, &mut differences));
                let better = best
                    .as_ref()
                    .is_none_or(|(_, known, _)| differences.len() < known.len());
                if better {
                    let perfect = differences.is_empty();
                    best = Some((at, differences, trial));
                    if perfect {
                        break;
                    }
                }
            }
            if let Some((at, differences, trial)) = best {
                left.remove(at);
                *self = trial;
                out.extend(differences);
            }
        }
    }

    fn text(&mut self, a: &str, b: &str, path: &Path, out: &mut Vec<String>) {
        if a == b {
            return;
        }
        let differs = if Uuid::try_parse(a).is_ok() {
            self.id(a, b)
        } else if a.parse::<std::net::Ipv4Addr>().is_ok() {
            // Which address is free, or which one a new machine gets, is not determined.
            self.seed.contains(a) || b.parse::<std::net::Ipv4Addr>().is_err()
        } else {
            masked(a) != masked(b)
        };
        if differs {
            out.push(format!("{}: {a:?} became {b:?}", path.text()));
        }
    }

    fn id(&mut self, a: &str, b: &str) -> bool {
        if Uuid::try_parse(b).is_err() || self.seed.contains(a) {
            return true;
        }
        if let Some(known) = self.map.get(a) {
            return known != b;
        }
        self.map.insert(a.to_owned(), b.to_owned());
        false
    }
}

struct Path {
    ordered: bool,
    names: Vec<String>,
}

impl Path {
    fn within<T>(&mut self, name: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        self.names.push(name.to_owned());
        let result = work(self);
        self.names.pop();
        result
    }

    fn text(&self) -> String {
        self.names.join(".")
    }

    /// An entry of a list, or the object of a job's result.
    fn is_entry(&self) -> bool {
        self.names.last().is_some_and(|name| {
            name == "[]" || name == "virtualmachine" || name == "loadbalancerruleinstance"
        })
    }
}

/// A text with ids, free addresses and internal numbers taken out.
pub(crate) fn masked(text: &str) -> String {
    const BEFORE_NUMBER: &[&str] = &[
        "\"id\":",
        "\"id\": ",
        "\"networkId\":",
        "\"dataCenterId\":",
        "\"networkofferingid\": ",
        "id=",
        "ID=",
        " ID ",
        "rule:",
        "rule: ",
        "[",
        "id:",
        "i-",
        "VM-",
    ];
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let token: String = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || "-.".contains(*c))
            .collect();
        let fresh = !out.ends_with(|c: char| c.is_ascii_alphanumeric());
        if fresh && Uuid::try_parse(&token).is_ok() && token.len() == 36 {
            out.push_str("<id>");
            rest = rest.get(token.len()..).unwrap_or_default();
        } else if fresh
            && token
                .trim_end_matches('.')
                .parse::<std::net::Ipv4Addr>()
                .is_ok_and(|ip| ip.octets().starts_with(&[192, 168, 2]))
        {
            out.push_str("<address>");
            rest = rest.get(token.trim_end_matches('.').len()..).unwrap_or_default();
        } else if fresh && token.starts_with("i-") && token.ends_with("-VM") {
            out.push_str("<instance>");
            rest = rest.get(token.len()..).unwrap_or_default();
        } else if c.is_ascii_digit() && BEFORE_NUMBER.iter().any(|before| out.ends_with(before)) {
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            out.push('#');
            rest = rest.get(digits..).unwrap_or_default();
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// Names of the elements of an XML text.
pub(crate) fn elements(text: &str) -> HashSet<String> {
    text.split('<')
        .filter_map(|part| part.split(['>', ' ', '/']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids() -> Ids {
        Ids::of_seed(
            json!({ "net": "11111111-1111-4111-8111-111111111111" })
                .as_object()
                .unwrap(),
        )
    }

    #[test]
    fn a_missing_field_another_type_and_another_value_differ() {
        assert_eq!(ids().compare(&json!({ "a": 1 }), &json!({}), false).len(), 1);
        assert_eq!(
            ids()
                .compare(&json!({ "a": 1 }), &json!({ "a": "1" }), false)
                .len(),
            1
        );
        assert_eq!(
            ids()
                .compare(&json!({ "a": 1 }), &json!({ "a": 1, "b": 2 }), false)
                .len(),
            1
        );
    }

    #[test]
    fn the_same_recorded_id_is_always_the_same_object() {
        let (a, b) = (
            "22222222-2222-4222-8222-222222222222",
            "33333333-3333-4333-8333-333333333333",
        );
        let mut ids = ids();
        assert!(ids.compare(&json!([a]), &json!([b]), false).is_empty());
        assert!(
            !ids.compare(&json!(a), &json!(a.replace('2', "4")), false)
                .is_empty()
        );
        assert!(
            !ids.compare(&json!("11111111-1111-4111-8111-111111111111"), &json!(b), false)
                .is_empty()
        );
    }

    #[test]
    fn lists_are_sets_unless_the_order_counts() {
        let (a, b) = (
            json!([{ "name": "x" }, { "name": "y" }]),
            json!([{ "name": "y" }, { "name": "x" }]),
        );
        assert!(ids().compare(&a, &b, false).is_empty());
        assert!(!ids().compare(&a, &b, true).is_empty());
    }

    #[test]
    fn internal_numbers_don_t_count_and_ports_do() {
        assert_eq!(
            masked("Ip address id=8 not ready"),
            masked("Ip address id=59 not ready")
        );
        assert_ne!(masked("range 80-80 conflicts"), masked("range 81-81 conflicts"));
    }
}
