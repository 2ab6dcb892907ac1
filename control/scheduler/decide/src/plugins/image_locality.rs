//! ImageLocality: nodes that have the pod's images, weighed by the share of nodes that have them.

use crate::images::ImageState;
use crate::node_state::NodeState;
use crate::plugins::Scorer;
use crate::plugins::normalize::{SCORE_MAX, truncated};
use crate::pod::Pod;

/// Bytes below which images do not count.
const THRESHOLD_MIN: i64 = 23 << 20;
/// Bytes for each container above which more do not count.
const CONTAINER_THRESHOLD_MAX: i64 = 1_000 << 20;

/// The score: the sum of the sizes of images that the node has.
pub(crate) struct Images<'a> {
    pod: &'a Pod,
    nodes_len: usize,
}

impl<'a> Images<'a> {
    pub(crate) fn of(pod: &'a Pod, nodes_len: usize) -> Self {
        Self { pod, nodes_len }
    }

    fn scaled(&self, image: &ImageState) -> i64 {
        let spread = image.nodes_len as f64 / self.nodes_len as f64;
        truncated(image.size as f64 * spread)
    }
}

impl Scorer for Images<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        let images = self.pod.images.iter();
        let present = images.filter_map(|name| node.images.get(name));
        let sum = present.fold(0_i64, |sum, image| sum.wrapping_add(self.scaled(image)));
        let most = CONTAINER_THRESHOLD_MAX.wrapping_mul(self.pod.containers_len);
        let sum = if sum < THRESHOLD_MIN {
            THRESHOLD_MIN
        } else {
            sum.min(most)
        };
        let range = most.wrapping_sub(THRESHOLD_MIN);
        SCORE_MAX.wrapping_mul(sum.wrapping_sub(THRESHOLD_MIN)) / range
    }
}
