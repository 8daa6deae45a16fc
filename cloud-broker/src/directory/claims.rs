//! UIDs that only an agent says. Pure.
//!
//! A UID decides which marks in the cloud are a cluster's own, so the first tenant that says one has it, until that tenant is no longer
//! configured: nobody becomes the owner of another cluster's objects by saying its name. This is forgotten with the process, so
//! clusters that share keys have their UIDs in the configuration (`tenant::fences`), and claims only tell others apart.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::tenant::{ClusterName, ClusterUid};

/// Who said which UID first.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<ClusterUid, ClusterName>>);

impl Claims {
    /// Takes the UID for a cluster, or says whose it is. `is_served` tells which clusters still count.
    pub(super) fn claim(
        &self,
        uid: &ClusterUid,
        cluster: &ClusterName,
        is_served: impl Fn(&ClusterName) -> bool,
    ) -> Result<(), String> {
        let mut claims = self.0.lock();
        match claims.get(uid) {
            Some(holder) if holder == cluster => return Ok(()),
            Some(holder) if is_served(holder) => {
                tracing::debug!(%uid, of = %holder, "a caller says another cluster's uid");
                return Err(format!("uid {uid} is said by another cluster already"));
            }
            Some(_) | None => {}
        }
        // One cluster has one UID at a time, so the table stays as small as the configuration.
        claims.retain(|_, holder| holder != cluster && is_served(holder));
        claims.insert(uid.clone(), cluster.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cluster_that_says_a_uid_has_it_while_it_is_served() {
        let claims = Claims::default();
        let uid = ClusterUid::new("u").unwrap();
        let (a, b) = (ClusterName::new("a"), ClusterName::new("b"));
        assert_eq!(claims.claim(&uid, &a, |_| true), Ok(()));
        assert_eq!(claims.claim(&uid, &a, |_| true), Ok(()));
        let refused = claims.claim(&uid, &b, |_| true).unwrap_err();
        assert_eq!(refused, "uid u is said by another cluster already");
        assert_eq!(claims.claim(&uid, &b, |name| *name == b), Ok(()));
    }

    #[test]
    fn a_cluster_that_was_made_anew_gives_its_old_uid_up() {
        let claims = Claims::default();
        let (old, new) = (ClusterUid::new("old").unwrap(), ClusterUid::new("new").unwrap());
        let (a, b) = (ClusterName::new("a"), ClusterName::new("b"));
        claims.claim(&old, &a, |_| true).unwrap();
        claims.claim(&new, &a, |_| true).unwrap();
        assert_eq!(claims.claim(&old, &b, |_| true), Ok(()));
    }
}
