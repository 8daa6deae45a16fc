//! Looking for free addresses that a cluster may use.
//!
//! Decides how much is read for it, since that is done in the turn in which addresses are taken: few allowed addresses are asked for
//! one by one; else pages are read until enough of them are allowed, and the next look begins at the first page that had one. A
//! look has an end: where a zone has very many free addresses, the next call goes on from there.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use parking_lot::Mutex;

use super::address::CANDIDATES;
use super::look::Looker;
use crate::cloudstack::types::{AddressState, ProjectId, PublicIpAddress, ZoneId};
use crate::cloudstack::{AddressQuery, Api, ApiError, PagePlace};
use crate::tenant::AllowedAddresses;

/// Most allowed addresses that are asked for one by one.
const FEW: usize = 16;
/// Pages of one look.
const MOST_PAGES: usize = 10;

/// Where, and which.
type Key = (String, Option<ProjectId>, Option<ZoneId>, AllowedAddresses);

/// The pages at which looks begin.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<Key, PagePlace>>);

/// What the looks of one call found last.
#[derive(Default)]
pub(super) struct LastLook(Mutex<BTreeSet<IpAddr>>);

impl Looker<'_> {
    /// Some free addresses that are allowed, as many as are tried if there are that many; none is no proof that there is none.
    pub(super) async fn free(
        &self,
        zone: Option<&ZoneId>,
        among: &AllowedAddresses,
    ) -> Result<Vec<PublicIpAddress>, ApiError> {
        let look = Look {
            api: self.api,
            zone,
            among,
        };
        look.look(self.places, &self.last_look).await
    }
}

/// One look.
struct Look<'c> {
    api: &'c Api,
    zone: Option<&'c ZoneId>,
    among: &'c AllowedAddresses,
}

impl Look<'_> {
    async fn look(&self, places: &Places, last: &LastLook) -> Result<Vec<PublicIpAddress>, ApiError> {
        if self.among.is_all() {
            return self.api.free_addresses(self.zone).await;
        }
        if let Some(few) = self.among.few(FEW) {
            return self.one_by_one(few).await;
        }
        // What took long to find is not looked for again as long as any of it is there.
        let known = last.0.lock().clone();
        let mut found = self.one_by_one(known).await?;
        if found.is_empty() {
            found = self.page_by_page(places).await?;
        }
        let few = || found.iter().map(|address| address.ip).collect();
        *last.0.lock() = if found.len() <= CANDIDATES {
            few()
        } else {
            BTreeSet::new()
        };
        Ok(found)
    }

    async fn one_by_one(&self, ips: BTreeSet<IpAddr>) -> Result<Vec<PublicIpAddress>, ApiError> {
        let mut found = Vec::new();
        for ip in ips {
            let list = self.api.addresses(&AddressQuery::Ip(ip)).await?.into_items();
            let usable = list
                .into_iter()
                .filter(|address| address.ip == ip && self.may_be_taken(address));
            found.extend(usable);
            if found.len() >= CANDIDATES {
                break;
            }
        }
        Ok(found)
    }

    async fn page_by_page(&self, places: &Places) -> Result<Vec<PublicIpAddress>, ApiError> {
        let key = self.key();
        let begin = places.0.lock().get(&key).copied().unwrap_or_default();
        let (mut place, mut wrapped) = (begin, false);
        let mut found: Vec<PublicIpAddress> = Vec::new();
        for _ in 0..MOST_PAGES {
            let (page, next) = self.api.free_addresses_at(self.zone, place).await?;
            for address in page {
                if self.may_be_taken(&address) && found.iter().all(|other| other.id != address.id) {
                    found.push(address);
                }
            }
            if found.len() >= CANDIDATES {
                break;
            }
            if found.is_empty() {
                // The call may be cut off at any time; the next one goes on from here.
                places.0.lock().insert(key.clone(), next.unwrap_or_default());
            }
            // Rows move towards the front while addresses are taken, so that the pages before are looked at, too.
            place = next.unwrap_or_default();
            if (next.is_none() && wrapped) || (next.is_none() || wrapped) && place == begin {
                break;
            }
            wrapped |= next.is_none();
        }
        Ok(found)
    }

    fn may_be_taken(&self, address: &PublicIpAddress) -> bool {
        let elsewhere = self
            .zone
            .is_some_and(|zone| address.zone_id.as_ref().is_some_and(|other| other != zone));
        !elsewhere && address.state == AddressState::Free && self.among.admit(address.ip)
    }

    fn key(&self) -> Key {
        (
            self.api.account().name().to_owned(),
            self.api.project().cloned(),
            self.zone.cloned(),
            self.among.clone(),
        )
    }
}
