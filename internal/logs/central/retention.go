package central

import (
	"time"
)

const (
	pruneInterval      = 10 * time.Minute
	spaceCheckInterval = 10 * time.Second // how old the known free space may become
	spaceCheckBytes    = 4 << 20          // and how many bytes may be written since then
	minFreeBytes       = 256 << 20        // free bytes that logs leave to templates
	minFreeDivisor     = 32               // on a small disk: total size / minFreeDivisor
)

// diskSpace is the last known state of the disk.
type diskSpace struct {
	sufficient   bool
	checkedAt    time.Time // when it was checked
	writtenSince int64     // since then
}

// hasFreeSpace reports whether the disk has free space for rows: templates have priority.
func (l *Logs) hasFreeSpace(now time.Time, add int) bool {
	if l.opts.Full != nil && l.opts.Full() {
		return false
	}
	if l.opts.Free == nil {
		return true
	}
	r := &l.space
	if since := now.Sub(r.checkedAt); r.checkedAt.IsZero() || since < 0 || since >= spaceCheckInterval ||
		r.writtenSince >= spaceCheckBytes {
		free, total, err := l.opts.Free()
		*r = diskSpace{sufficient: err != nil || free >= min(minFreeBytes, total/minFreeDivisor), checkedAt: now}
	}
	if r.sufficient {
		r.writtenSince += int64(add)
	}
	return r.sufficient
}

// Prune removes expired files, at most once in pruneInterval. Writing rows does that, too: Tidy is for
// logs without new rows.
func (l *Logs) Prune() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pruneLocked(l.opts.Now())
}

func (l *Logs) pruneLocked(now time.Time) {
	if since := now.Sub(l.lastPrune); since >= 0 && since < pruneInterval && !l.lastPrune.IsZero() {
		return
	}
	l.lastPrune = now
	for _, s := range l.services {
		for _, f := range s.files {
			if now.Sub(f.lastRowAt) > l.opts.Retention {
				l.removeFile(f)
			}
		}
		if len(s.files) == 0 { // none of its rows could be written
			delete(l.services, s.name)
		}
	}
	l.enforceLimits(nil)
}

// enforceLimits removes files until the others are within the limits, but never the file that was just
// written.
func (l *Logs) enforceLimits(but *logFile) {
	for {
		var most *logFile
		switch {
		case l.stats.Bytes > l.opts.MaxBytes:
			most = l.oldestOfLargest(but, func(f *logFile) (int64, string) { return f.size, f.machine })
		case l.stats.Files > l.maxFileCount:
			most = l.oldestOfLargest(but, func(*logFile) (int64, string) { return 1, "" })
		}
		if most == nil {
			return
		}
		l.removeFile(most)
	}
}

// oldestOfLargest returns the oldest file of the largest holder: of the service with the largest amount,
// and in it of the machine with the largest amount. A program that floods the logs therefore loses
// its own rows and not those of others. weigh returns the amount of a file and its holder within
// the service.
func (l *Logs) oldestOfLargest(but *logFile, weigh func(*logFile) (amount int64, whose string)) *logFile {
	var largest logHolder
	for _, s := range l.services {
		h := logHolder{machines: map[string]*logHolder{}}
		for _, f := range s.files {
			if f == but || f.removeFailed {
				continue
			}
			amount, whose := weigh(f)
			if h.machines[whose] == nil {
				h.machines[whose] = &logHolder{}
			}
			h.addFile(f, amount)
			h.machines[whose].addFile(f, amount)
		}
		if h.amount > largest.amount {
			largest = h
		}
	}
	var oldest *logFile
	var amount int64
	for _, h := range largest.machines {
		if oldest == nil || h.amount > amount || h.amount == amount && compareLastRow(h.oldest, oldest) < 0 {
			amount, oldest = h.amount, h.oldest
		}
	}
	return oldest
}

// logHolder is the total amount of a service or a machine.
type logHolder struct {
	amount   int64
	oldest   *logFile
	machines map[string]*logHolder // of a service: by machine
}

func (h *logHolder) addFile(f *logFile, amount int64) {
	h.amount += amount
	if h.oldest == nil || compareLastRow(f, h.oldest) < 0 {
		h.oldest = f
	}
}

// removeFile removes a file, and with the last one its service.
func (l *Logs) removeFile(f *logFile) {
	l.closeHandle(f)
	s := f.service
	if err := l.opts.Root.Remove(f.path()); err != nil && !isNotExist(err) {
		l.opts.Log.Warn("removing a log file failed", "file", f.path(), "error", err)
		f.removeFailed = true
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
		_ = l.opts.Root.Remove(s.name) // other files may be in it
		delete(l.services, s.name)
	}
}
