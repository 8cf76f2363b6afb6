package central

import (
	"time"
)

const (
	tidyEvery = 10 * time.Minute
	lookEvery = 10 * time.Second // how old the known free space may become
	lookBytes = 4 << 20          // and how many bytes may be written since then
	floor     = 256 << 20        // free bytes that logs leave to templates
	floorPart = 32               // on a small disk: total size / floorPart
)

// diskSpace is the last known state of the disk.
type diskSpace struct {
	ok      bool
	at      time.Time // when it was checked
	written int64     // since then
}

// roomy reports whether the disk has free space for rows: templates have priority.
func (l *Logs) roomy(now time.Time, add int) bool {
	if l.o.Full != nil && l.o.Full() {
		return false
	}
	if l.o.Free == nil {
		return true
	}
	r := &l.room
	if since := now.Sub(r.at); r.at.IsZero() || since < 0 || since >= lookEvery || r.written >= lookBytes {
		free, total, err := l.o.Free()
		*r = diskSpace{ok: err != nil || free >= min(floor, total/floorPart), at: now}
	}
	if r.ok {
		r.written += int64(add)
	}
	return r.ok
}

// Tidy removes expired files, at most once in tidyEvery. Writing rows does that, too: Tidy is for
// logs without new rows.
func (l *Logs) Tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidyLocked(l.o.Now())
}

func (l *Logs) tidyLocked(now time.Time) {
	if since := now.Sub(l.tidied); since >= 0 && since < tidyEvery && !l.tidied.IsZero() {
		return
	}
	l.tidied = now
	for _, s := range l.services {
		for _, f := range s.files {
			if now.Sub(f.last) > l.o.Keep {
				l.remove(f)
			}
		}
		if len(s.files) == 0 { // none of its rows could be written
			delete(l.services, s.name)
		}
	}
	l.bound(nil)
}

// bound removes files until the others are within the limits, but never the file that was just
// written.
func (l *Logs) bound(but *file) {
	for {
		var most *file
		switch {
		case l.stats.Bytes > l.o.MaxBytes:
			most = l.crowding(but, func(f *file) (int64, string) { return f.size, f.machine })
		case l.stats.Files > l.most:
			most = l.crowding(but, func(*file) (int64, string) { return 1, "" })
		}
		if most == nil {
			return
		}
		l.remove(most)
	}
}

// crowding returns the oldest file of the largest holder: of the service with the largest amount,
// and in it of the machine with the largest amount. A program that floods the logs therefore loses
// its own rows and not those of others. weigh returns the amount of a file and its holder within
// the service.
func (l *Logs) crowding(but *file, weigh func(*file) (amount int64, whose string)) *file {
	var largest holder
	for _, s := range l.services {
		h := holder{of: map[string]*holder{}}
		for _, f := range s.files {
			if f == but || f.stuck {
				continue
			}
			amount, whose := weigh(f)
			if h.of[whose] == nil {
				h.of[whose] = &holder{}
			}
			h.add(f, amount)
			h.of[whose].add(f, amount)
		}
		if h.amount > largest.amount {
			largest = h
		}
	}
	var oldest *file
	var amount int64
	for _, h := range largest.of {
		if oldest == nil || h.amount > amount || h.amount == amount && byAge(h.oldest, oldest) < 0 {
			amount, oldest = h.amount, h.oldest
		}
	}
	return oldest
}

// holder is the total amount of a service or a machine.
type holder struct {
	amount int64
	oldest *file
	of     map[string]*holder // of a service: by machine
}

func (h *holder) add(f *file, amount int64) {
	h.amount += amount
	if h.oldest == nil || byAge(f, h.oldest) < 0 {
		h.oldest = f
	}
}

// remove removes a file, and with the last one its service.
func (l *Logs) remove(f *file) {
	l.shut(f)
	s := f.service
	if err := l.o.Root.Remove(f.path()); err != nil && !isNotExist(err) {
		l.o.Log.Warn("removing a log file failed", "file", f.path(), "error", err)
		f.stuck = true
		return
	}
	l.stats.Files--
	l.stats.Bytes -= f.size
	delete(s.files, f.name)
	for machine, c := range s.current {
		if c == f {
			delete(s.current, machine)
		}
	}
	if len(s.files) == 0 {
		_ = l.o.Root.Remove(s.name) // other files may be in it
		delete(l.services, s.name)
	}
}
