package host

import (
	"cmp"
	"fmt"
)

// repairLocked moves a damaged inventory aside. The next full scan rebuilds it.
func (h *Host) repairLocked(damage error) error {
	aside, err := h.book.Repair(h.now())
	if err != nil {
		return fmt.Errorf("%w; it cannot be set aside: %w", damage, err)
	}
	h.memory.Full = &scanRequest{Path: h.memory.Path, Started: h.now()}
	h.warnLocked(
		fmt.Sprintf("the inventory could not be read (%v): it is set aside as %s since %s, and a full scan rebuilds it",
			damage, aside, moment(h.now())))
	h.rememberLocked()
	return nil
}

// rebuild moves an inventory aside that turned out to be damaged, and begins a full scan.
func (h *Host) rebuild(damage error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	if h.life.Err() != nil {
		return
	}
	h.mu.Lock()
	full := h.full
	h.full = nil
	h.mu.Unlock()
	if full != nil {
		full.cancel(errRebuild)
		<-full.done
	}
	h.judging.Lock()
	defer h.judging.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case again := <-h.damage:
		h.log.Debug("Jobs that ended since then report it too.", "error", again)
	default:
	}
	if err := h.repairLocked(damage); err != nil {
		h.warnLocked(err.Error())
		h.state = cmp.Or(h.memory.State, Idle)
		return
	}
	h.state = RunningFull
	h.beginFullLocked(*h.memory.Full)
}
