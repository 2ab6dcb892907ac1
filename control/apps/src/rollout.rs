//! An app's change from one template to another, as its record shows it.

use dormouse_cluster::AppStatus;

use crate::record::AppRecord;

impl AppRecord {
    /// Whether all pods run the app's template.
    pub(crate) fn is_rolled_out(&self) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.template == self.template)
    }

    /// The number of pods that count towards the wanted number, without those that a change of the template has added. `stored`
    /// is the status that an earlier control has written.
    pub(crate) fn live_without_surge(&self, stored: &AppStatus) -> usize {
        if self.is_rolled_out() {
            return self.live();
        }
        let wanted = usize::try_from(stored.wanted.max(1)).unwrap_or(usize::MAX);
        self.live().min(wanted)
    }
}
