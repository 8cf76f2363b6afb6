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
	maxServices     = 256
	maxFiles        = 50000    // of all services: a week of several thousand machines
	maxFileBytes    = 64 << 20 // bytes of a file, after which the next one begins
	minFilesInLimit = 8        // at least this many files share MaxBytes, so that removing the oldest leaves most of it
	maxOpenFiles    = 64       // files that are kept open for writing
)

// builtinServices are the services of this cloud: they are always accepted, however many others there are.
var builtinServices = map[string]bool{"controller": true, "registry": true, "node": true}

// The default limits.
const (
	DefaultRetention = 7 * 24 * time.Hour
	DefaultMaxBytes  = 1 << 30
)

// Options configure Logs. The zero value of all but Root means a default.
type Options struct {
	Root      *os.Root      // the directory of the logs; Close closes it
	Retention time.Duration // a file is removed this long after its last row: DefaultRetention
	MaxBytes  int64         // of all files; the largest holder loses its oldest file first: DefaultMaxBytes

	Full func() bool                           // reports whether rows are to be dropped; nil: never
	Free func() (free, total int64, err error) // space of the disk; nil: enough
	Now  func() time.Time
	Log  *slog.Logger // for failures; logs only changes of the state, so its output may go to these logs
}

// Logs are the central logs in one directory. Its methods may be called from many goroutines.
type Logs struct {
	opts         Options
	maxFileBytes int64 // bytes of a file
	maxFileCount int   // files

	mu              sync.Mutex // guards the fields below; held over a write
	services        map[string]*logService
	openFiles       []*logFile // with a handle, most recently used last
	lineBuf         []byte     // of the rows that are being written
	space           diskSpace
	stats           Stats
	dropping        bool
	lastPrune       time.Time
	streams         map[string]map[*Stream]bool
	runningArchives int
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

// logService is a directory of logs.
type logService struct {
	name        string
	files       map[string]*logFile
	current     map[string]*logFile // by machine; "" for events
	droppedRows int                 // rows since the last written one
}

// logFile is one file of a service. Size counts whole rows only.
type logFile struct {
	service      *logService
	machine      string // as in the name; "" for events
	name         string
	size         int64
	startedAt    time.Time // its day is in the name
	lastRowAt    time.Time // when a row was written
	handle       *os.File  // nil: not open
	removeFailed bool      // it cannot be removed
}

func (f *logFile) path() string { return f.service.name + "/" + f.name }

// Open reads the existing logs and removes what is beyond the limits.
func Open(o Options) (*Logs, error) {
	if o.Retention == 0 {
		o.Retention = DefaultRetention
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
		opts: o, maxFileBytes: min(maxFileBytes, max(1, o.MaxBytes/minFilesInLimit)), maxFileCount: maxFiles,
		services: map[string]*logService{},
		streams:  map[string]map[*Stream]bool{},
	}
	if err := l.loadFiles(); err != nil {
		return nil, err
	}
	l.Prune()
	return l, nil
}

// Close ends the streams and closes the files.
func (l *Logs) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.streams {
		for s := range all {
			s.endStream()
		}
	}
	for len(l.openFiles) > 0 {
		l.closeHandle(l.openFiles[0])
	}
	return l.opts.Root.Close()
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
			return taken, rowError(err, i, len(rows))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Now()
	l.pruneLocked(now)
	if err := l.checkServiceCount(rows); err != nil {
		return taken, err
	}
	for len(rows) > 0 {
		n := leadingSameFile(rows)
		if err := l.writeRows(rows[:n], now); err != nil {
			taken.Dropped += n
		} else {
			taken.Rows += n
		}
		rows = rows[n:]
	}
	return taken, nil
}

// checkServiceCount refuses rows that would create too many services.
func (l *Logs) checkServiceCount(rows []api.LogRow) error {
	fresh := map[string]bool{}
	for i := range rows {
		name := rows[i].Service
		if l.services[name] != nil || builtinServices[name] {
			continue
		}
		if fresh[name] = true; len(l.services)+len(fresh) > maxServices {
			return farm.Refused("Limit of services with central logs (%d) reached; service %q was refused", maxServices,
				name)
		}
	}
	return nil
}

// rowError adds the position of the row to an error.
func rowError(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return farm.Errorf(farm.CodeOf(err), "rows[%d].%s", i, err)
}

// leadingSameFile returns the number of leading rows that go to one file.
func leadingSameFile(rows []api.LogRow) int {
	for i := range rows {
		if rows[i].Service != rows[0].Service || rows[i].MachineName != rows[0].MachineName {
			return i
		}
	}
	return len(rows)
}

// writeRows writes rows of one service and machine.
func (l *Logs) writeRows(rows []api.LogRow, now time.Time) error {
	s, err := l.getOrCreateService(rows[0].Service)
	if err != nil {
		l.recordDropped(s, len(rows), err)
		return err
	}
	line := l.lineBuf[:0]
	if s.droppedRows > 0 {
		gap := rows[0]
		gap.Content = fmt.Sprintf("%d rows are missing here: they could not be written", s.droppedRows)
		line = appendRow(line, &gap, now)
	}
	for i := range rows {
		line = appendRow(line, &rows[i], now)
	}
	l.lineBuf = line[:0]
	if cap(line) > maxKeptBuffer {
		l.lineBuf = nil
	}
	f := l.fileForRows(s, fileNamePart(rows[0].MachineName), now, int64(len(line)))
	if err := l.appendLines(f, "", line, now); err != nil {
		l.recordDropped(s, len(rows), err)
		return err
	}
	l.recordWritten(s, len(rows))
	return nil
}

// maxKeptBuffer limits the row buffer that is kept for the next rows, in bytes.
const maxKeptBuffer = 1 << 20

// AppendEvents writes events to the event log in order, each as one JSON object: all of them or none.
func (l *Logs) AppendEvents(events [][]byte) error {
	var lines []byte
	for i, raw := range events {
		line, err := eventLine(raw)
		if err != nil {
			return eventError(err, i, len(events))
		}
		lines = append(lines, line...)
	}
	if len(events) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Now()
	s, err := l.getOrCreateService(EventService)
	if err == nil {
		f := l.fileForEvents(s, now, int64(len(lines)))
		header := ""
		if f.size == 0 {
			header = eventHeader + f.startedAt.UTC().Format(eventHeaderLayout) + "\n"
		}
		err = l.appendLines(f, header, lines, now)
	}
	if err != nil {
		l.logDropping(err)
		return farm.Unavailable(err, "Writing the events failed; try again")
	}
	l.recordWritten(s, len(events))
	return nil
}

func eventError(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return farm.Errorf(farm.CodeOf(err), "events[%d]: %s", i, err)
}

// recordDropped counts rows that could not be written.
func (l *Logs) recordDropped(s *logService, rows int, err error) {
	s.droppedRows += rows
	l.stats.Dropped += int64(rows)
	l.logDropping(err)
}

func (l *Logs) recordWritten(s *logService, rows int) {
	s.droppedRows = 0
	l.stats.Rows += int64(rows)
	l.logDropping(nil)
}

// logDropping logs when the dropping of rows begins and ends.
func (l *Logs) logDropping(err error) {
	if failing := err != nil; failing != l.dropping {
		l.dropping = failing
		if failing {
			l.opts.Log.Warn("writing central logs failed; rows are dropped", "error", err)
		} else {
			l.opts.Log.Info("central logs can be written again")
		}
	}
}

// closeHandle closes the handle of a file.
func (l *Logs) closeHandle(f *logFile) {
	if f.handle != nil {
		_ = f.handle.Close() // every row is written
		f.handle = nil
	}
	l.openFiles = slices.DeleteFunc(l.openFiles, func(o *logFile) bool { return o == f })
}
