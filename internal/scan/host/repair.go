package host

import (
	"cmp"
	"fmt"
)

// repairInventoryLocked moves a damaged inventory aside. The next full scan rebuilds it.
func (h *Host) repairInventoryLocked(damage error) error {
	aside, err := h.inventory.Repair(h.monotonicNow())
	if err != nil {
		return fmt.Errorf("%w; moving it aside failed: %w", damage, err)
	}
	h.saved.Marks = nil // they are positions in the inventory that was moved aside
	h.saved.FullScan = &scanRequest{Path: h.saved.Path, Started: h.monotonicNow()}
	h.warnLocked(
		fmt.Sprintf("the inventory could not be read (%v): it is set aside as %s since %s, and a full scan rebuilds it",
			damage, aside, formatTime(h.monotonicNow())))
	h.saveStateLocked()
	return nil
}

// rebuildInventory moves an inventory aside that turned out to be damaged, and begins a full scan.
func (h *Host) rebuildInventory(damage error) {
	h.transitionMu.Lock()
	defer h.transitionMu.Unlock()
	if h.runCtx.Err() != nil {
		return
	}
	h.mu.Lock()
	full := h.fullScan
	h.fullScan = nil
	h.mu.Unlock()
	if full != nil {
		full.cancel(errRebuild)
		<-full.done
	}
	h.matchMu.Lock()
	defer h.matchMu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case again := <-h.damageReports:
		h.log.Debug("More jobs reported the damaged inventory.", "error", again)
	default:
	}
	if err := h.repairInventoryLocked(damage); err != nil {
		h.warnLocked(err.Error())
		h.state = cmp.Or(h.saved.State, Idle)
		return
	}
	h.state = RunningFull
	h.beginFullLocked(*h.saved.FullScan)
}
