//! Mutants: each takes one rule away, so that the simulator can show that its search notices.
//!
//! Compiled only for the simulator (feature `simulation`); everywhere else a switch is `false` at
//! compile time, and the code behind it is gone.

/// Whether the named mutant is at work.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutant::is_on($name)
    };
}

/// Whether the named mutant is at work on this thread.
#[cfg(feature = "simulation")]
pub fn is_on(name: &str) -> bool {
    current::NAME.get() == Some(name)
}

/// There are no mutants outside of the simulator.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}

#[cfg(feature = "simulation")]
mod current {
    thread_local! {
        pub(super) static NAME: std::cell::Cell<Option<&'static str>> =
            const { std::cell::Cell::new(None) };
    }
}

/// Sets the mutant that is at work on this thread.
#[cfg(feature = "simulation")]
pub fn set(name: Option<&'static str>) {
    current::NAME.set(name);
}
