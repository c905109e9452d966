//! Which model a request is sent to in place of the one that it names, where a rewrite of its pool says so.
//!
//! Everything behind this point sees the model that it is sent to: the prefix, which engines keep apart by model, the
//! adapter, the limits. The client sees the one that it asked for.

use std::sync::Arc;

use http::HeaderMap;
use protocol::{Head, Model, head::NameAt};

use super::edit::Edits;
use crate::{
    answer::Renamed,
    record::Record,
    rewrites::Target,
    routes::{Routes, Served},
};

/// What a rewrite makes of a request.
pub(super) struct Rewritten<'a> {
    asked: &'a str,
    place: NameAt,
    target: &'a Target,
}

/// The rewrite of a request to this pool, if there is one. One that names no model has nothing to be rewritten.
pub(super) fn of<'a>(head: Option<&'a Head>, served: &Served, routes: &'a Routes) -> Option<Rewritten<'a>> {
    let rewrites = routes.rewrites.get(&*served.pool.name)?;
    let head = head?;
    let (Model::Named(asked), Some(place)) = (&head.model, head.model_at) else { return None };
    let target = rewrites.draw(asked, fastrand::u64(..))?;
    Some(Rewritten { asked, place, target })
}

impl Rewritten<'_> {
    /// The model that it is sent to.
    pub(super) fn served(&self) -> &Arc<Served> {
        &self.target.served
    }

    /// Puts the change of the body among the others, and gives the model that it is sent to.
    pub(super) fn put(self, edits: &mut Edits, headers: &mut HeaderMap, record: &mut Record) -> Arc<Served> {
        self.target.chosen();
        let asked: Arc<str> = self.asked.into();
        record.asked_model = Some(Arc::clone(&asked));
        let served = Arc::clone(&self.target.served);
        if *asked != *served.model {
            let renamed = Renamed { asked, target: Arc::clone(&served.model) };
            edits.rename(self.place, renamed, headers, record);
        }
        served
    }
}
