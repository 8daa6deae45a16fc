//! A seed from code, for tests that need a world of their own.

use serde_json::{Map, Value, json};

use super::{CallerSeed, Seed};

/// Makes a [`Seed`] step by step. Every method takes names; what is not said gets a usual value.
///
/// ```
/// use cloudstack_simulator::Seed;
/// let seed = Seed::builder().account("demo").network("demo", "k8s", "127.101.0.0/24").machines("k8s", "node-", 3).build();
/// assert_eq!(seed.virtualmachines.len(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    seed: Seed,
}

impl Default for Builder {
    fn default() -> Self {
        let mut seed = Seed::default();
        seed.accounts
            .push(map(json!({ "name": "admin", "rolename": "Root Admin" })));
        seed.callers.insert(
            "admin".into(),
            CallerSeed {
                account: Some("admin".into()),
                ..CallerSeed::default()
            },
        );
        Self { seed }
    }
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// A network of a seed.
#[derive(Debug, Clone)]
pub struct NetworkSeed(Map<String, Value>);

impl NetworkSeed {
    /// An isolated network with a router and a source NAT address.
    pub fn isolated(name: &str, cidr: &str) -> Self {
        Self(map(
            json!({ "name": name, "type": "Isolated", "cidr": cidr, "state": "Implemented" }),
        ))
    }

    /// A network of everybody, without a load balancer.
    pub fn shared(name: &str, cidr: &str) -> Self {
        Self(map(
            json!({ "name": name, "type": "Shared", "cidr": cidr, "state": "Setup" }),
        ))
    }

    /// A network without any service.
    pub fn l2(name: &str) -> Self {
        Self(map(json!({ "name": name, "type": "L2", "state": "Allocated" })))
    }

    /// A tier of a VPC, with the list `default_allow`.
    pub fn tier(name: &str, vpc: &str, cidr: &str) -> Self {
        Self(map(
            json!({ "name": name, "type": "Isolated", "cidr": cidr, "state": "Implemented", "vpcname": vpc, "aclname": "default_allow" }),
        ))
    }

    /// The account it belongs to.
    #[must_use]
    pub fn account(mut self, name: &str) -> Self {
        self.0.insert("account".into(), json!(name));
        self
    }

    /// The project it belongs to.
    #[must_use]
    pub fn project(mut self, name: &str) -> Self {
        self.0.insert("project".into(), json!(name));
        self
    }

    /// Without a router yet.
    #[must_use]
    pub fn not_implemented(mut self) -> Self {
        self.0.insert("state".into(), json!("Allocated"));
        self
    }

    /// Services of its offering, instead of the usual ones.
    #[must_use]
    pub fn services(mut self, names: &[&str]) -> Self {
        self.0.insert(
            "service".into(),
            names
                .iter()
                .map(|name| json!({ "name": name, "capability": [] }))
                .collect(),
        );
        self
    }

    /// The ACL list of a tier.
    #[must_use]
    pub fn acl(mut self, list: &str) -> Self {
        self.0.insert("aclname".into(), json!(list));
        self
    }
}

/// A machine of a seed.
#[derive(Debug, Clone)]
pub struct MachineSeed(Map<String, Value>);

impl MachineSeed {
    /// A running machine with a card in a network. Without an address it gets the next free one.
    pub fn new(name: &str, network: &str, address: Option<&str>) -> Self {
        let nic = json!({ "networkname": network, "ipaddress": address, "isdefault": true });
        Self(map(json!({ "name": name, "state": "Running", "nic": [nic] })))
    }

    /// One more card.
    #[must_use]
    pub fn nic(mut self, network: &str, address: Option<&str>) -> Self {
        if let Some(Value::Array(nics)) = self.0.get_mut("nic") {
            nics.push(json!({ "networkname": network, "ipaddress": address, "isdefault": false }));
        }
        self
    }

    /// Its id, instead of one made from the name.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.0.insert("id".into(), json!(id));
        self
    }

    /// Another state, such as `Stopped`.
    #[must_use]
    pub fn state(mut self, state: &str) -> Self {
        self.0.insert("state".into(), json!(state));
        self
    }

    /// The account it belongs to, when not that of its network.
    #[must_use]
    pub fn account(mut self, name: &str) -> Self {
        self.0.insert("account".into(), json!(name));
        self
    }
}

impl Builder {
    /// An account of role `User` with keys under the same caller name.
    #[must_use]
    pub fn account(self, name: &str) -> Self {
        self.account_with_role(name, "User")
    }

    /// An account with another role, such as `Project Kubernetes Service Role`.
    #[must_use]
    pub fn account_with_role(mut self, name: &str, role: &str) -> Self {
        self.seed
            .accounts
            .push(map(json!({ "name": name, "rolename": role })));
        self.seed.callers.insert(
            name.into(),
            CallerSeed {
                account: Some(name.into()),
                ..CallerSeed::default()
            },
        );
        self
    }

    /// A project with its members, the first of them its owner.
    #[must_use]
    pub fn project(mut self, name: &str, members: &[&str]) -> Self {
        let owner = members.first().map(|member| json!([{ "account": member }]));
        self.seed
            .projects
            .push(map(json!({ "name": name, "owner": owner })));
        for member in members {
            let caller = self.seed.callers.entry((*member).to_owned()).or_default();
            caller.account.get_or_insert_with(|| (*member).to_owned());
            caller.projects.insert(name.to_owned(), "Regular".into());
        }
        self
    }

    /// An isolated network of an account, with a router and a source NAT address.
    #[must_use]
    pub fn network(self, account: &str, name: &str, cidr: &str) -> Self {
        self.network_seed(NetworkSeed::isolated(name, cidr).account(account))
    }

    /// Any network.
    #[must_use]
    pub fn network_seed(mut self, network: NetworkSeed) -> Self {
        self.seed.networks.push(network.0);
        self
    }

    /// A VPC of an account. Its tiers are [`NetworkSeed::tier`].
    #[must_use]
    pub fn vpc(mut self, account: &str, name: &str, cidr: &str) -> Self {
        self.seed
            .vpcs
            .push(map(json!({ "name": name, "account": account, "cidr": cidr })));
        self
    }

    /// So many running machines in a network, named by the prefix and a number from 1.
    #[must_use]
    pub fn machines(mut self, network: &str, prefix: &str, count: usize) -> Self {
        for number in 1..=count {
            self = self.machine(MachineSeed::new(&format!("{prefix}{number}"), network, None));
        }
        self
    }

    /// Any machine.
    #[must_use]
    pub fn machine(mut self, machine: MachineSeed) -> Self {
        self.seed.virtualmachines.push(machine.0);
        self
    }

    /// A range of public addresses. Without any it is 127.100.0.10 to 127.100.0.250.
    #[must_use]
    pub fn public_range(mut self, first: &str, last: &str) -> Self {
        self.seed.publicipranges.push(map(
            json!({ "startip": first, "endip": last, "forvirtualnetwork": true }),
        ));
        self
    }

    /// A global setting of the server.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.seed.settings.insert(name.into(), json!(value));
        self
    }

    /// The version that `listCapabilities` shows.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.seed.version = Some(version.into());
        self
    }

    /// The seed.
    pub fn build(mut self) -> Seed {
        if self.seed.publicipranges.is_empty() {
            self = self.public_range("127.100.0.10", "127.100.0.250");
        }
        self.seed
    }
}
