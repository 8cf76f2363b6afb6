package central

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// The limits that are not settings.
const (
	maxServices = 256
	maxFiles    = 50000    // of all services: a week of several thousand machines
	maxPart     = 64 << 20 // bytes of a file, after which the next one begins
	parts       = 8        // at least this many files share MaxBytes, so that removing the oldest leaves most of it
	maxOpen     = 64       // files that are kept open for writing
)

// own are the services of this cloud: they are always accepted, however many others there are.
var own = map[string]bool{"controller": true, "registry": true, "node": true}

// The default limits.
const (
	DefaultKeep     = 7 * 24 * time.Hour
	DefaultMaxBytes = 1 << 30
)

// Options configure Logs. The zero value of all but Root means a default.
type Options struct {
	Root     *os.Root      // the directory of the logs; Close closes it
	Keep     time.Duration // a file is removed this long after its last row: DefaultKeep
	MaxBytes int64         // of all files; the largest holder loses its oldest file first: DefaultMaxBytes

	Full func() bool                           // reports whether rows are to be dropped; nil: never
	Free func() (free, total int64, err error) // space of the disk; nil: enough
	Now  func() time.Time
	Log  *slog.Logger // for failures; logs only changes of the state, so its output may go to these logs
}

// Logs are the central logs in one directory. Its methods may be called from many goroutines.
type Logs struct {
	o    Options
	part int64 // bytes of a file
	most int   // files

	mu       sync.Mutex // guards the fields below; held over a write
	services map[string]*service
	open     []*file // with a handle, most recently used last
	line     []byte  // of the rows that are being written
	room     diskSpace
	stats    Stats
	failing  bool
	tidied   time.Time
	streams  map[string]map[*Stream]bool
	archives int
}

// Stats count events since the logs were opened, and the current content.
type Stats struct {
	Rows    int64 // written, including events
	Dropped int64 // rows that could not be written
	Skipped int64 // rows that a stream did not receive, since its reader is too slow
	Files   int
	Bytes   int64 // of all files
	Streams int   // that are being read
}

// service is a directory of logs.
type service struct {
	name    string
	files   map[string]*file
	current map[string]*file // by machine; "" for events
	dropped int              // rows since the last written one
}

// file is one file of a service. Size counts whole rows only.
type file struct {
	service *service
	machine string // as in the name; "" for events
	name    string
	size    int64
	begun   time.Time // its day is in the name
	last    time.Time // when a row was written
	handle  *os.File  // nil: not open
	stuck   bool      // it cannot be removed
}

func (f *file) path() string { return f.service.name + "/" + f.name }

// Open reads the existing logs and removes what is beyond the limits.
func Open(o Options) (*Logs, error) {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Logs{
		o: o, part: min(maxPart, max(1, o.MaxBytes/parts)), most: maxFiles, services: map[string]*service{},
		streams: map[string]map[*Stream]bool{},
	}
	if err := l.load(); err != nil {
		return nil, err
	}
	l.Tidy()
	return l, nil
}

// Close ends the streams and closes the files.
func (l *Logs) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.streams {
		for s := range all {
			s.end()
		}
	}
	for len(l.open) > 0 {
		l.shut(l.open[0])
	}
	return l.o.Root.Close()
}

// Stats returns the counts.
func (l *Logs) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Append writes rows, each to the file of its service and machine. Rows that cannot be written are
// dropped and counted, also in a row once there is free space again. Only rows that can never be
// written are an error, and then none is written.
func (l *Logs) Append(rows []api.LogRow) (api.LogAppendResult, error) {
	var taken api.LogAppendResult
	for i := range rows {
		if err := checkRow(&rows[i]); err != nil {
			return taken, ofRow(err, i, len(rows))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	l.tidyLocked(now)
	if err := l.enough(rows); err != nil {
		return taken, err
	}
	for len(rows) > 0 {
		n := alike(rows)
		if err := l.write(rows[:n], now); err != nil {
			taken.Dropped += n
		} else {
			taken.Rows += n
		}
		rows = rows[n:]
	}
	return taken, nil
}

// enough refuses rows that would create too many services.
func (l *Logs) enough(rows []api.LogRow) error {
	fresh := map[string]bool{}
	for i := range rows {
		name := rows[i].Service
		if l.services[name] != nil || own[name] {
			continue
		}
		if fresh[name] = true; len(l.services)+len(fresh) > maxServices {
			return farm.Refused("Limit of services with central logs (%d) reached; service %q was refused", maxServices,
				name)
		}
	}
	return nil
}

// ofRow adds the position of the row to an error.
func ofRow(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return farm.Errorf(farm.CodeOf(err), "rows[%d].%s", i, err)
}

// alike returns the number of leading rows that go to one file.
func alike(rows []api.LogRow) int {
	for i := range rows {
		if rows[i].Service != rows[0].Service || rows[i].MachineName != rows[0].MachineName {
			return i
		}
	}
	return len(rows)
}

// write writes rows of one service and machine.
func (l *Logs) write(rows []api.LogRow, now time.Time) error {
	s, err := l.enter(rows[0].Service)
	if err != nil {
		l.drop(s, len(rows), err)
		return err
	}
	line := l.line[:0]
	if s.dropped > 0 {
		gap := rows[0]
		gap.Content = fmt.Sprintf("%d rows are missing here: they could not be written", s.dropped)
		line = appendRow(line, &gap, now)
	}
	for i := range rows {
		line = appendRow(line, &rows[i], now)
	}
	l.line = line[:0]
	if cap(line) > maxKept {
		l.line = nil
	}
	f := l.current(s, machineFile(rows[0].MachineName), now, int64(len(line)))
	if err := l.put(f, "", line, now); err != nil {
		l.drop(s, len(rows), err)
		return err
	}
	l.wrote(s, len(rows))
	return nil
}

// maxKept limits the row buffer that is kept for the next rows, in bytes.
const maxKept = 1 << 20

// Events writes events to the event log in order, each as one JSON object: all of them or none.
func (l *Logs) Events(events [][]byte) error {
	var lines []byte
	for i, raw := range events {
		line, err := eventLine(raw)
		if err != nil {
			return ofEvent(err, i, len(events))
		}
		lines = append(lines, line...)
	}
	if len(events) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	s, err := l.enter(EventService)
	if err == nil {
		f := l.currentEvents(s, now, int64(len(lines)))
		header := ""
		if f.size == 0 {
			header = eventHeader + f.begun.UTC().Format(eventStamp) + "\n"
		}
		err = l.put(f, header, lines, now)
	}
	if err != nil {
		l.note(err)
		return farm.Unavailable(err, "Writing the events failed; try again")
	}
	l.wrote(s, len(events))
	return nil
}

func ofEvent(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return farm.Errorf(farm.CodeOf(err), "events[%d]: %s", i, err)
}

// drop counts rows that could not be written.
func (l *Logs) drop(s *service, rows int, err error) {
	s.dropped += rows
	l.stats.Dropped += int64(rows)
	l.note(err)
}

func (l *Logs) wrote(s *service, rows int) {
	s.dropped = 0
	l.stats.Rows += int64(rows)
	l.note(nil)
}

// note logs when the dropping of rows begins and ends.
func (l *Logs) note(err error) {
	if failing := err != nil; failing != l.failing {
		l.failing = failing
		if failing {
			l.o.Log.Warn("writing central logs failed; rows are dropped", "error", err)
		} else {
			l.o.Log.Info("central logs can be written again")
		}
	}
}

// shut closes the handle of a file.
func (l *Logs) shut(f *file) {
	if f.handle != nil {
		_ = f.handle.Close() // every row is written
		f.handle = nil
	}
	l.open = slices.DeleteFunc(l.open, func(o *file) bool { return o == f })
}
