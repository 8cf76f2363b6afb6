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
	ending      = ".log"
	dayForm     = "2006-01-02"
	eventFile   = EventService + ending
	eventHeader = "Log file created at: "
	eventStamp  = "2006/01/02 15:04:05" // the form of the header's time, in UTC
)

// load finds the existing files. Other names, and items that are not files, are ignored.
func (l *Logs) load() error {
	dirs, err := fs.ReadDir(l.o.Root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list central logs: %w", err)
	}
	for _, dir := range dirs {
		if !dir.IsDir() || CheckService(dir.Name()) != nil {
			continue
		}
		entries, err := fs.ReadDir(l.o.Root.FS(), dir.Name())
		if err != nil {
			return fmt.Errorf("list central logs: %w", err)
		}
		s := newService(dir.Name())
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() && ours(e.Name()) {
				l.stats.Files++
				l.stats.Bytes += info.Size()
				s.files[e.Name()] = &file{
					service: s, machine: machineOf(s.name, e.Name()), name: e.Name(), size: info.Size(),
					begun: info.ModTime(), last: info.ModTime(),
				}
			}
		}
		if len(s.files) > 0 {
			l.services[s.name] = s
			l.resume(s)
		}
	}
	return nil
}

// ours reports whether a file name may be that of a log.
func ours(name string) bool {
	return strings.HasSuffix(name, ending) && name[0] != '.' && !strings.ContainsFunc(name, odd)
}

func newService(name string) *service {
	return &service{name: name, files: map[string]*file{}, current: map[string]*file{}}
}

// resume finds out when the existing event log began.
func (l *Logs) resume(s *service) {
	f := s.files[eventFile]
	if s.name != EventService || f == nil {
		return
	}
	s.current[""] = f
	in, err := l.o.Root.Open(f.path())
	if err != nil {
		return
	}
	defer in.Close()
	head := make([]byte, len(eventHeader)+len(eventStamp))
	n, _ := in.ReadAt(head, 0) // a shorter one has no header
	text, _ := strings.CutPrefix(string(head[:n]), eventHeader)
	if at, err := time.Parse(eventStamp, text); err == nil {
		f.begun = at
	}
}

// enter returns a service, which is created if it is new. It is never nil.
func (l *Logs) enter(name string) (*service, error) {
	s := l.services[name]
	if s == nil {
		s = newService(name)
		l.services[name] = s
	}
	if len(s.files) > 0 {
		return s, nil
	}
	if err := l.o.Root.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return s, fmt.Errorf("create log directory of a service: %w", err)
	}
	return s, nil
}

// current returns the file for rows of a machine: one per day, and another one when it is full.
func (l *Logs) current(s *service, machine string, now time.Time, add int64) *file {
	day := now.UTC().Format(dayForm)
	f := s.current[machine]
	if f != nil && f.begun.UTC().Format(dayForm) == day && l.fits(f, add) {
		return f
	}
	for no := 1; ; no++ {
		name := machine + "." + day + ending
		if no > 1 {
			name = machine + "." + day + "." + strconv.Itoa(no) + ending
		}
		if f = s.files[name]; f == nil {
			f = &file{service: s, machine: machine, name: name, begun: now}
		} else if !l.fits(f, add) {
			continue
		}
		f.begun = now
		s.current[machine] = f
		return f
	}
}

// fits reports whether a file can take add bytes; an empty one can take anything.
func (l *Logs) fits(f *file, add int64) bool { return f.size == 0 || f.size+add <= l.part }

// currentEvents returns the file for events. Its name is always the same: the file of an earlier
// day, or a full one, is renamed.
func (l *Logs) currentEvents(s *service, now time.Time, add int64) *file {
	f := s.current[""]
	if f != nil && (!l.fits(f, add) || f.begun.UTC().Format(dayForm) != now.UTC().Format(dayForm)) &&
		l.setAside(f, now) {
		f = nil
	}
	if f == nil {
		f = &file{service: s, name: eventFile, begun: now}
		s.current[""] = f
	}
	return f
}

// setAside renames the event log to an archived name; false when that fails and the file remains in
// use.
func (l *Logs) setAside(f *file, now time.Time) bool {
	if f.size == 0 {
		return false
	}
	s := f.service
	name := ""
	for at := now.UTC(); name == "" || s.files[name] != nil; at = at.Add(time.Millisecond) {
		name = EventService + "." + at.Format("2006-01-02T150405.000") + ending
	}
	l.shut(f)
	if err := l.o.Root.Rename(f.path(), s.name+"/"+name); err != nil {
		l.o.Log.Warn("rotating the event log failed; the file grows beyond its limit", "error", err)
		return false
	}
	delete(s.files, f.name)
	f.name = name
	s.files[name] = f
	return true
}

// errNoRoom is the reason why rows are dropped without an attempt to write them.
var errNoRoom = errors.New("free disk space is reserved for templates")

// put appends whole lines to a file; nothing of an interrupted write stays. Streams do not receive
// the header.
func (l *Logs) put(f *file, header string, lines []byte, now time.Time) error {
	if !l.roomy(now, len(lines)) {
		return errNoRoom
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
		l.shut(f)
		return err
	}
	if f.service.files[f.name] == nil {
		f.service.files[f.name] = f
		l.stats.Files++
	}
	f.size += int64(len(text))
	f.last = now
	l.stats.Bytes += int64(len(text))
	l.tell(f.service.name, lines)
	l.bound(f)
	return nil
}

// openFile opens a file for appending. A partial row that a crash left becomes a separate line.
func (l *Logs) openFile(f *file) error {
	if f.handle != nil {
		if l.open[len(l.open)-1] != f {
			l.open = append(slices.DeleteFunc(l.open, func(o *file) bool { return o == f }), f)
		}
		return nil
	}
	handle, err := l.o.Root.OpenFile(f.path(), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	if err := l.mend(f, handle); err != nil {
		return errors.Join(err, handle.Close())
	}
	f.handle = handle
	if l.open = append(l.open, f); len(l.open) > maxOpen {
		l.shut(l.open[0])
	}
	return nil
}

func (l *Logs) mend(f *file, handle *os.File) error {
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
