//! What was last heard of the machine behind each node, for those who need members of load balancers.
//!
//! Filled by every look-up of the node controllers; a node's own provider id answers where nothing was heard yet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::presence::Presence;
use super::provider_id::{MachineId, ProviderId};

/// The machine behind a node, as a member of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// This one.
    Machine(MachineId),
    /// None is known.
    Unresolved,
    /// This one, and it is proved gone.
    Gone(MachineId),
    /// Another cloud's: not a member at all.
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Found { id: MachineId, mismatch: bool },
    Gone,
}

/// Knowledge of machines by node. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    heard: Arc<Mutex<HashMap<String, Heard>>>,
    /// Where the broker looked when it last found a node's machine.
    scopes: Arc<Mutex<HashMap<String, String>>>,
    changed: Arc<Notify>,
}

impl Machines {
    /// The machine behind a node. A node whose system UUID names another machine than its provider id is unresolved.
    pub fn member(&self, node: &Node) -> Member {
        let named = ProviderId::parse(node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()));
        let heard = self.heard.lock().get(&node.uid().unwrap_or_default()).cloned();
        match (named, heard) {
            (ProviderId::Foreign, _) => Member::Foreign,
            (ProviderId::Machine(id), Some(Heard::Gone)) => Member::Gone(id),
            (_, Some(Heard::Found { mismatch: true, .. })) => Member::Unresolved,
            // The old provider id without a machine can't be corrected; what was found by name or system UUID counts.
            (ProviderId::Machine(id), _) | (ProviderId::Unresolved, Some(Heard::Found { id, .. })) => {
                Member::Machine(id)
            }
            (ProviderId::Absent | ProviderId::Unresolved, _) => Member::Unresolved,
        }
    }

    /// Remembers an answer, and in which scope the broker looked. True if members may look different now.
    pub fn hear(&self, node_uid: &str, presence: &Presence, scope: Option<&str>) -> bool {
        let heard = match presence {
            Presence::Found(machine) => {
                if let Some(scope) = scope {
                    self.scopes.lock().insert(node_uid.to_owned(), scope.to_owned());
                }
                Heard::Found {
                    id: machine.id.clone(),
                    mismatch: machine.mismatch,
                }
            }
            // Gone from another scope than it was found in proves nothing.
            Presence::Gone(_)
                if self
                    .scope_of(node_uid)
                    .is_some_and(|found| Some(found.as_str()) != scope) =>
            {
                return false;
            }
            Presence::Gone(_) => Heard::Gone,
            // An unknown changes nothing that was known.
            Presence::Unknown { .. } => return false,
        };
        let news = self.heard.lock().insert(node_uid.to_owned(), heard.clone()) != Some(heard);
        if news {
            self.changed.notify_one();
        }
        news
    }

    /// Where the broker looked when it last found this node's machine.
    pub fn scope_of(&self, node_uid: &str) -> Option<String> {
        self.scopes.lock().get(node_uid).cloned()
    }

    /// Notified whenever members may look different. For one waiter.
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Forgets nodes that are not there any more.
    pub fn keep(&self, uids: impl Iterator<Item = String>) {
        let present: HashSet<String> = uids.collect();
        self.heard.lock().retain(|uid, _| present.contains(uid));
        self.scopes.lock().retain(|uid, _| present.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::presence::{Machine, Proof, Why};
    use rstest::rstest;

    fn node(provider_id: &str) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some("u".into());
        node.spec.get_or_insert_default().provider_id =
            Some(provider_id.to_owned()).filter(|id| !id.is_empty());
        node
    }

    fn found(mismatch: bool) -> Presence {
        Presence::Found(Box::new(Machine {
            mismatch,
            ..Machine::example()
        }))
    }

    const OURS: &str = "cloudstack:///3a1b2c3d-0000-4000-8000-0123456789ab";

    fn id() -> MachineId {
        Machine::example().id
    }

    #[rstest]
    #[case::not_asked_yet(OURS, None, Member::Machine(id()))]
    #[case::found(OURS, Some(found(false)), Member::Machine(id()))]
    #[case::another_machine_answers(OURS, Some(found(true)), Member::Unresolved)]
    #[case::gone(OURS, Some(Presence::Gone(Proof::example())), Member::Gone(id()))]
    #[case::unknown(OURS, Some(Presence::Unknown { why: Why::NotYet, text: String::new() }), Member::Machine(id()))]
    #[case::no_id("", None, Member::Unresolved)]
    #[case::old_id("external-cloudstack", None, Member::Unresolved)]
    #[case::old_id_found_by_name("external-cloudstack", Some(found(false)), Member::Machine(id()))]
    #[case::foreign("aws:///a/b", Some(found(false)), Member::Foreign)]
    fn a_node_stands_for_this_member(
        #[case] provider_id: &str,
        #[case] heard: Option<Presence>,
        #[case] expected: Member,
    ) {
        let machines = Machines::default();
        if let Some(presence) = heard {
            machines.hear("u", &presence, None);
        }
        assert_eq!(machines.member(&node(provider_id)), expected);
    }

    #[test]
    fn only_news_is_news() {
        let machines = Machines::default();
        assert!(machines.hear("u", &found(false), Some("s")));
        assert!(!machines.hear("u", &found(false), Some("s")));
        assert!(machines.hear("u", &found(true), None));
        assert_eq!(machines.scope_of("u").as_deref(), Some("s"));
        machines.keep(std::iter::empty());
        assert!(
            machines.hear("u", &found(true), None),
            "it was forgotten with its node"
        );
    }
}
