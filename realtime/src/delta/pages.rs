//! Numbered items in pages of fixed size: an item never moves, so memory does not double to grow.

/// Items with dense numbers from 0.
#[derive(Clone)]
pub(super) struct Pages<T> {
    pages: Vec<Vec<T>>,
}

/// Items of a page.
const PAGE: usize = 64;

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Pages<T> {
    /// Adds an item, and returns its number.
    pub(super) fn push(&mut self, item: T) -> u32 {
        let number = self.len();
        match self.pages.last_mut() {
            Some(page) if page.len() < PAGE => page.push(item),
            _ => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(item);
                self.pages.push(page);
            }
        }
        u32::try_from(number).expect("BUG: a delta is flushed before 2^32 items")
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        let last = self.pages.last().map_or(0, Vec::len);
        PAGE * self.pages.len().saturating_sub(1) + last
    }

    pub(super) fn get(&self, number: u32) -> &T {
        &self.pages[number as usize / PAGE][number as usize % PAGE]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize / PAGE][number as usize % PAGE]
    }

    /// All items in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }

    /// Memory of the items, bytes.
    pub(super) fn bytes(&self) -> usize {
        PAGE * size_of::<T>() * self.pages.len() + size_of::<Vec<T>>() * self.pages.capacity()
    }
}
