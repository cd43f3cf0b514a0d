//! The memory of a delta store that takes counts, in layers. Views share layers, and a shared layer is never changed.
//!
//! Nearly all counts are in the base. A count that comes while a view holds the base goes to a small layer above the
//! base. That layer is folded into the base once no view holds either of them. Where views hold the base for long,
//! small layers are merged with each other by copying, so that there are few.
//!
//! Invariant: the layers together count every increment of the delta store that no frozen delta and no run counts,
//! exactly once.

use std::sync::Arc;

use super::fold::Fold;
use super::memory::{Delta, Form};
use super::minutes::Forgotten;

/// Number of layers above the base from which on small ones are merged by copying.
const ABOVE_MAX: usize = 8;

/// Deltas of one delta store, the base first.
#[derive(Clone)]
pub(crate) struct Layers {
    form: Form,
    base: Arc<Delta>,
    above: Vec<Layer>,
}

#[derive(Clone)]
struct Layer {
    delta: Arc<Delta>,
    /// True while the layer is being folded and takes nothing more: a count in a part that was moved already would be
    /// lost.
    sealed: bool,
}

/// A fold of a layer into one below it.
#[derive(Default)]
pub(crate) struct Folding {
    /// Index of the layer and of the layer below: 0 is the base, 1 the layer above the base.
    pair: Option<(usize, usize)>,
    fold: Fold,
}

/// Result of one step of a fold.
pub(crate) enum Step {
    /// More counters remain to be moved.
    More,
    /// The layer is empty. It still holds its memory, which takes a moment to free.
    Ended(Arc<Delta>),
    /// No two layers can be folded, because views hold them.
    Shared,
    /// No layer is above the base.
    Nothing,
}

/// Layers that are to be merged by copying.
pub(crate) struct Copying {
    from: usize,
    layers: Vec<Arc<Delta>>,
}

impl Layers {
    /// Creates an empty base.
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            base: Arc::new(Delta::new(form)),
            above: Vec::new(),
        }
    }

    /// All layers.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = &Arc<Delta>> {
        std::iter::once(&self.base).chain(self.above.iter().map(|layer| &layer.delta))
    }

    /// True when there are layers above the base.
    pub(crate) fn has_above(&self) -> bool {
        !self.above.is_empty()
    }

    /// The delta to count in: the base, or a layer that no view holds.
    pub(crate) fn open(&mut self) -> &mut Delta {
        let Self { form, base, above } = self;
        if Arc::get_mut(base).is_some() {
            return free(base);
        }
        let is_free = |layer: &mut Layer| !layer.sealed && Arc::get_mut(&mut layer.delta).is_some();
        let open = above.iter_mut().position(is_free);
        let open = open.unwrap_or_else(|| {
            above.push(Layer::new(Delta::new(*form)));
            above.len() - 1
        });
        free(&mut above[open].delta)
    }

    /// Adds a delta, which counts from now on.
    pub(crate) fn push(&mut self, delta: Delta) {
        self.above.push(Layer::new(delta));
    }

    /// Moves about `counters` counters of a layer into a layer below it; no view holds either of them. Between the
    /// steps of one `folding`, only the counts of layers change, and layers are added.
    pub(crate) fn step(&mut self, folding: &mut Folding, counters: usize) -> Step {
        if self.above.is_empty() {
            return Step::Nothing;
        }
        let mut to = Arc::get_mut(&mut self.base).map(|base| (0, base));
        for (index, layer) in (1..).zip(&mut self.above) {
            let Some(from) = Arc::get_mut(&mut layer.delta) else {
                continue;
            };
            let Some((below, into)) = to else {
                to = Some((index, from));
                continue;
            };
            let pair = Some((index, below));
            if folding.pair != pair {
                (folding.pair, folding.fold) = (pair, Fold::default());
            }
            layer.sealed = true;
            from.forget_erased();
            into.forget_erased();
            if folding.fold.step(from, into, counters) {
                return Step::More;
            }
            folding.pair = None;
            return Step::Ended(self.above.remove(index - 1).delta);
        }
        Step::Shared
    }

    /// The layers to merge by copying, where there are many: the newest ones, so that each count is copied only a few
    /// times.
    pub(crate) fn many(&self) -> Option<Copying> {
        if self.above.len() <= ABOVE_MAX {
            return None;
        }
        let (mut from, mut counters) = (self.above.len(), 0);
        for (index, layer) in self.above.iter().enumerate().rev() {
            let more = layer.delta.counters();
            if from < self.above.len() && more > 2 * counters {
                break;
            }
            (from, counters) = (index, counters + more);
        }
        let layers = &self.above[from..];
        (layers.len() > 1).then(|| Copying {
            from,
            layers: layers
                .iter()
                .map(|layer| Arc::clone(&layer.delta))
                .collect(),
        })
    }

    /// Replaces layers by their merge, and returns the layers. Only a fold removes layers.
    pub(crate) fn replace(&mut self, copying: Copying, merged: Delta) -> Vec<Arc<Delta>> {
        let Copying { from, layers } = copying;
        let replaced = from..from + layers.len();
        let is_same = |(layer, copied): (&Layer, &Arc<Delta>)| Arc::ptr_eq(&layer.delta, copied);
        let kept = &self.above[replaced.clone()];
        assert!(
            kept.iter().zip(&layers).all(is_same),
            "BUG: layers change only while they are folded"
        );
        // Users may have been erased since the layers were copied.
        layers
            .iter()
            .for_each(|layer| merged.erase(&layer.erased.users()));
        self.above.splice(replaced, [Layer::new(merged)]);
        layers
    }

    /// Forgets the breakdowns by minute of hours before `instant` (Unix seconds), and adds them to `forgotten`. Returns
    /// false where a view holds a layer, which then forgets nothing.
    pub(crate) fn forget_breakdowns(
        &mut self,
        instant: i64,
        forgotten: &mut Vec<Forgotten>,
    ) -> bool {
        let above = self.above.iter_mut().map(|layer| &mut layer.delta);
        let mut is_all = true;
        for delta in std::iter::once(&mut self.base).chain(above) {
            match Arc::get_mut(delta) {
                Some(delta) => forgotten.extend(delta.forget_breakdowns(instant)),
                None => is_all = false,
            }
        }
        is_all
    }

    /// Takes all layers that count something, and leaves an empty base.
    pub(crate) fn take(&mut self) -> Vec<Arc<Delta>> {
        let taken = std::mem::replace(self, Self::new(self.form));
        let above = taken.above.into_iter().map(|layer| layer.delta);
        let all = std::iter::once(taken.base).chain(above);
        all.filter(|delta| !delta.is_empty()).collect()
    }
}

impl Layer {
    fn new(delta: Delta) -> Self {
        Self {
            delta: Arc::new(delta),
            sealed: false,
        }
    }
}

/// A delta that no view holds, to count in.
fn free(delta: &mut Arc<Delta>) -> &mut Delta {
    let delta = Arc::get_mut(delta).expect("BUG: a view holds the delta");
    delta.forget_erased();
    delta
}

impl Copying {
    /// Merges the layers. The time grows with the number of their counters.
    pub(crate) fn merged(&self) -> Delta {
        let mut layers = self.layers.iter();
        let first = layers.next().expect("BUG: there are several");
        let mut merged = Delta::clone(first);
        merged.forget_erased();
        for layer in layers {
            let mut layer = Delta::clone(layer);
            layer.forget_erased();
            let mut fold = Fold::default();
            while fold.step(&mut layer, &mut merged, usize::MAX) {}
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::{Event, EventType, Increment, LongKeys, Schema, UserKey};

    use super::*;

    #[test]
    fn an_erasure_while_layers_are_copied_is_not_lost() {
        let keys = LongKeys::new([7; 32]);
        let event = Event {
            kind: "click".into(),
            view: None,
            correction: false,
        };
        let click = Increment {
            user: Some("ann".into()),
            event: Some(Box::new(event)),
            ..Increment::new(1_331_923_200, 1, [("ad_click", "1")])
        };
        let mut schema = Schema::default_clicks();
        schema.namespaces[0].name = "ad_click".into();
        schema.events = vec![EventType {
            name: "click".into(),
            entities: vec!["ad".into()],
            lateness_seconds: 0,
            actions: true,
        }];
        let form = Form {
            shards: 3,
            breakdowns: false,
        };
        let mut layers = Layers::new(form);
        let mut views = Vec::new();
        for _ in 0..ABOVE_MAX + 3 {
            layers.open().add(&keys, &schema, &[&click]);
            views.push(layers.clone());
        }
        let user = UserKey::of(&keys, "ann");
        let shown = |layers: &Layers| {
            let mut shown = 0;
            let day = tallyring_records::Day::of(click.at);
            for delta in layers.deltas() {
                delta.actions(
                    (user, user.crc()),
                    day..day.next(),
                    usize::MAX,
                    &mut |_, _, n| shown += n,
                );
            }
            shown
        };
        assert_eq!(shown(&layers), ABOVE_MAX as u64 + 3);
        let copying = layers.many().expect("many layers");
        let merged = copying.merged();
        layers.deltas().for_each(|delta| delta.erase(&[user]));
        assert_eq!(shown(&layers), 0);
        layers.replace(copying, merged);
        assert_eq!(shown(&layers), 0);
    }
}
