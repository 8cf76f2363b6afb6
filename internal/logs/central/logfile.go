package central

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	logSuffix         = ".log"
	dayLayout         = "2006-01-02"
	eventFile         = EventService + logSuffix
	eventHeader       = "Log file created at: "
	eventHeaderLayout = "2006/01/02 15:04:05" // the form of the header's time, in UTC
)

// loadFiles finds the existing files. Other names, and items that are not files, are ignored.
func (l *Logs) loadFiles() error {
	dirs, err := fs.ReadDir(l.opts.Root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list central logs: %w", err)
	}
	for _, dir := range dirs {
		if !dir.IsDir() || CheckService(dir.Name()) != nil {
			continue
		}
		entries, err := fs.ReadDir(l.opts.Root.FS(), dir.Name())
		if err != nil {
			return fmt.Errorf("list central logs: %w", err)
		}
		s := newLogService(dir.Name())
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() && isLogName(e.Name()) {
				l.stats.Files++
				l.stats.Bytes += info.Size()
				s.files[e.Name()] = &logFile{
					service: s, machine: machineOf(s.name, e.Name()), name: e.Name(), size: info.Size(),
					startedAt: info.ModTime(), lastRowAt: info.ModTime(),
				}
			}
		}
		if len(s.files) > 0 {
			l.services[s.name] = s
			l.resumeEventLog(s)
		}
	}
	return nil
}

// isLogName reports whether a file name may be that of a log.
func isLogName(name string) bool {
	return strings.HasSuffix(name, logSuffix) && name[0] != '.' && !strings.ContainsFunc(name, isInvalidNameRune)
}

func newLogService(name string) *logService {
	return &logService{name: name, files: map[string]*logFile{}, current: map[string]*logFile{}}
}

// resumeEventLog finds out when the existing event log began.
func (l *Logs) resumeEventLog(s *logService) {
	f := s.files[eventFile]
	if s.name != EventService || f == nil {
		return
	}
	s.current[""] = f
	in, err := l.opts.Root.Open(f.path())
	if err != nil {
		return
	}
	defer in.Close()
	head := make([]byte, len(eventHeader)+len(eventHeaderLayout))
	n, _ := in.ReadAt(head, 0) // a shorter one has no header
	text, _ := strings.CutPrefix(string(head[:n]), eventHeader)
	if at, err := time.Parse(eventHeaderLayout, text); err == nil {
		f.startedAt = at
	}
}

// getOrCreateService returns a service, which is created if it is new. It is never nil.
func (l *Logs) getOrCreateService(name string) (*logService, error) {
	s := l.services[name]
	if s == nil {
		s = newLogService(name)
		l.services[name] = s
	}
	if len(s.files) > 0 {
		return s, nil
	}
	if err := l.opts.Root.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return s, fmt.Errorf("create log directory of a service: %w", err)
	}
	return s, nil
}

// fileForRows returns the file for rows of a machine: one per day, and another one when it is full.
func (l *Logs) fileForRows(s *logService, machine string, now time.Time, add int64) *logFile {
	day := now.UTC().Format(dayLayout)
	f := s.current[machine]
	if f != nil && f.startedAt.UTC().Format(dayLayout) == day && l.hasCapacity(f, add) {
		return f
	}
	for no := 1; ; no++ {
		name := machine + "." + day + logSuffix
		if no > 1 {
			name = machine + "." + day + "." + strconv.Itoa(no) + logSuffix
		}
		if f = s.files[name]; f == nil {
			f = &logFile{service: s, machine: machine, name: name, startedAt: now}
		} else if !l.hasCapacity(f, add) {
			continue
		}
		f.startedAt = now
		s.current[machine] = f
		return f
	}
}

// hasCapacity reports whether a file can take add bytes; an empty one can take anything.
func (l *Logs) hasCapacity(f *logFile, add int64) bool {
	return f.size == 0 || f.size+add <= l.maxFileBytes
}

// fileForEvents returns the file for events. Its name is always the same: the file of an earlier
// day, or a full one, is renamed.
func (l *Logs) fileForEvents(s *logService, now time.Time, add int64) *logFile {
	f := s.current[""]
	if f != nil && (!l.hasCapacity(f, add) || f.startedAt.UTC().Format(dayLayout) != now.UTC().Format(dayLayout)) &&
		l.archiveEventLog(f, now) {
		f = nil
	}
	if f == nil {
		f = &logFile{service: s, name: eventFile, startedAt: now}
		s.current[""] = f
	}
	return f
}

// archiveEventLog renames the event log to an archived name; false when that fails and the file remains in
// use.
func (l *Logs) archiveEventLog(f *logFile, now time.Time) bool {
	if f.size == 0 {
		return false
	}
	s := f.service
	name := ""
	for at := now.UTC(); name == "" || s.files[name] != nil; at = at.Add(time.Millisecond) {
		name = EventService + "." + at.Format("2006-01-02T150405.000") + logSuffix
	}
	l.closeHandle(f)
	if err := l.opts.Root.Rename(f.path(), s.name+"/"+name); err != nil {
		l.opts.Log.Warn("rotating the event log failed; the file grows beyond its limit", "error", err)
		return false
	}
	delete(s.files, f.name)
	f.name = name
	s.files[name] = f
	return true
}

// errReservedForTemplates is the reason why rows are dropped without an attempt to write them.
var errReservedForTemplates = errors.New("free disk space is reserved for templates")

// appendLines appends whole lines to a file; nothing of an interrupted write stays. Streams do not receive
// the header.
func (l *Logs) appendLines(f *logFile, header string, lines []byte, now time.Time) error {
	if !l.hasFreeSpace(now, len(lines)) {
		return errReservedForTemplates
	}
	if err := l.openFile(f); err != nil {
		return err
	}
	text := lines
	if header != "" {
		text = append([]byte(header), lines...)
	}
	if _, err := f.handle.Write(text); err != nil {
		err = errors.Join(fmt.Errorf("write a log: %w", err), f.handle.Truncate(f.size))
		l.closeHandle(f)
		return err
	}
	if f.service.files[f.name] == nil {
		f.service.files[f.name] = f
		l.stats.Files++
	}
	f.size += int64(len(text))
	f.lastRowAt = now
	l.stats.Bytes += int64(len(text))
	l.deliver(f.service.name, lines)
	l.enforceLimits(f)
	return nil
}

// openFile opens a file for appending. A partial row that a crash left becomes a separate line.
func (l *Logs) openFile(f *logFile) error {
	if f.handle != nil {
		if l.openFiles[len(l.openFiles)-1] != f {
			l.openFiles = append(slices.DeleteFunc(l.openFiles, func(o *logFile) bool { return o == f }), f)
		}
		return nil
	}
	handle, err := l.opts.Root.OpenFile(f.path(), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	if err := l.repairTail(f, handle); err != nil {
		return errors.Join(err, handle.Close())
	}
	f.handle = handle
	if l.openFiles = append(l.openFiles, f); len(l.openFiles) > maxOpenFiles {
		l.closeHandle(l.openFiles[0])
	}
	return nil
}

func (l *Logs) repairTail(f *logFile, handle *os.File) error {
	info, err := handle.Stat()
	if err != nil {
		return fmt.Errorf("check log file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.path())
	}
	size := info.Size()
	var last [1]byte
	if size > 0 {
		if _, err := handle.ReadAt(last[:], size-1); err != nil {
			return fmt.Errorf("read a log: %w", err)
		}
		if last[0] != '\n' {
			if _, err := handle.WriteString("\n"); err != nil {
				return fmt.Errorf("write a log: %w", err)
			}
			size++
		}
	}
	if f.service.files[f.name] != nil {
		l.stats.Bytes += size - f.size
	} else {
		l.stats.Bytes += size
	}
	f.size = size
	return nil
}
