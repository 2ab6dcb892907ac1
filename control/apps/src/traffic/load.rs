//! The load of an app, in pods, as its targets show it: each has as many as its autoscaler wants for its share. Pure.

/// The targets with a share: their pods, also those that have failed or start yet, and their percentages.
#[derive(Debug)]
pub(super) struct Load {
    all: Vec<(u32, u32)>,
    /// Those whose share does not grow: pods that were started for a greater one are no measure.
    stay: Vec<(u32, u32)>,
    /// The least number of pods of a target. One that has no more may have any load up to that.
    least: u32,
}

impl Load {
    /// Targets are their pods, their percentages, and whether their share grows.
    pub(super) fn new(targets: impl Iterator<Item = (u32, u32, bool)>, least: u32) -> Self {
        let (mut all, mut stay) = (Vec::new(), Vec::new());
        for (pods, percent, grows) in targets {
            all.push((pods, percent));
            if !grows {
                stay.push((pods, percent));
            }
        }
        let least = least.max(1);
        Self { all, stay, least }
    }

    /// The pods that all of the traffic needs, at most: without those for shares that grow.
    pub(super) fn most(&self) -> u32 {
        self.at_most(&self.stay).min(sum(&self.all))
    }

    /// The pods that all of the traffic needs, as far as a share grows. `known`: as was measured before, while it waits. `is_small`: none
    /// grows by more than a quarter, for which no pods are started that perhaps no load needs.
    pub(super) fn pods(&self, known: Option<u32>, is_small: bool) -> u32 {
        let (most, measured) = (
            self.most(),
            known.unwrap_or_else(|| self.measured(is_small)),
        );
        // Pods for a load that is over are not kept while a share waits.
        let is_over = known.is_some() && most < measured / 2;
        if is_over {
            most
        } else {
            measured.max(most.min(sum(&self.stay)))
        }
    }

    fn measured(&self, is_small: bool) -> u32 {
        let greatest = self.all.iter().map(|(pods, _)| *pods).max().unwrap_or(0);
        if is_small && greatest <= self.least {
            return greatest;
        }
        self.at_most(&self.all).min(sum(&self.all))
    }

    /// The pods that all of the traffic needs, at most. Each target rounds up: the one with the greatest share is the best measure.
    fn at_most(&self, targets: &[(u32, u32)]) -> u32 {
        let scaled = targets.iter().filter(|(pods, _)| *pods > self.least);
        if let Some((pods, percent)) = scaled.max_by_key(|(_, percent)| *percent) {
            return pods.saturating_mul(100) / percent;
        }
        let awake = targets.iter().filter(|(pods, _)| *pods > 0);
        let all = awake.map(|(pods, percent)| pods.saturating_mul(100).div_ceil(*percent));
        all.min().unwrap_or(0)
    }
}

fn sum(targets: &[(u32, u32)]) -> u32 {
    targets.iter().map(|(pods, _)| pods).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(least: u32, targets: &[(u32, u32, bool)]) -> Load {
        Load::new(targets.iter().copied(), least)
    }

    #[test]
    fn the_target_with_the_greatest_share_and_more_than_the_least_pods_is_the_measure() {
        let load = load(0, &[(18, 60, true), (13, 40, false)]);
        assert_eq!((load.pods(None, false), load.most()), (30, 31));
        assert_eq!(load.pods(Some(30), false), 30, "it is known");
        assert_eq!(load.pods(Some(64), false), 31, "it is over");
        assert_eq!(load.pods(Some(5), false), 13, "it has grown");
    }

    #[test]
    fn targets_with_the_least_pods_may_have_a_load_for_all_of_them() {
        let three = load(5, &[(5, 34, true), (5, 33, false), (5, 33, false)]);
        assert_eq!((three.pods(None, false), three.most()), (15, 15));
        let two = load(5, &[(5, 50, true), (5, 50, false)]);
        assert_eq!((two.pods(None, false), two.pods(None, true)), (10, 5));
        let first = load(5, &[(5, 90, false), (5, 10, true)]);
        assert_eq!(first.pods(None, false), 6, "the first has at most its five");
        let asleep = load(0, &[(0, 1, true), (1, 99, false)]);
        assert_eq!((asleep.pods(None, false), asleep.most()), (1, 1));
        assert_eq!(load(0, &[(0, 100, false)]).most(), 0);
    }
}
