package central

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// The limits for reading the end of logs.
const (
	MaxTailLines     = 10000
	maxTailBytes     = 8 << 20   // bytes of the end of one file
	streamStartFiles = 16        // files whose ends a new stream begins with
	streamStartBytes = 256 << 10 // bytes of each
)

// Services lists the services that have logs, sorted.
func (l *Logs) Services() []api.LogService {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []api.LogService{}
	for _, name := range slices.Sorted(maps.Keys(l.services)) {
		out := api.LogService{Service: name}
		for _, f := range l.services[name].files {
			out.Files++
			out.Size += f.size
			if at := f.lastRowAt.UTC(); at.After(out.LastWrite) {
				out.LastWrite = at
			}
		}
		if out.Files > 0 {
			list = append(list, out)
		}
	}
	return list
}

// Files lists the files of a service, the oldest first.
func (l *Logs) Files(name string) ([]api.LogFile, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []api.LogFile{}
	for _, f := range l.sortedFiles(name) {
		list = append(list,
			api.LogFile{
				Service: name, Name: f.name, MachineName: f.machine, Size: f.size,
				LastWrite: f.lastRowAt.UTC(),
			})
	}
	if len(list) == 0 {
		return nil, farm.NotFound()
	}
	return list, nil
}

// sortedFiles returns the files of a service in the order of their last rows.
func (l *Logs) sortedFiles(name string) []*logFile {
	s := l.services[name]
	if s == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(s.files), compareLastRow)
}

// compareLastRow orders files by their last rows.
func compareLastRow(a, b *logFile) int {
	return cmp.Or(a.lastRowAt.Compare(b.lastRowAt), strings.Compare(a.name, b.name))
}

// machineOf returns the machine in the name of a service's file.
func machineOf(service, name string) string {
	if service == EventService {
		return ""
	}
	name = strings.TrimSuffix(name, logSuffix)
	for range 2 { // the number and the day
		i := strings.LastIndexByte(name, '.')
		if i <= 0 {
			break
		}
		rest := name[i+1:]
		name = name[:i]
		if len(rest) == len(dayLayout) {
			break
		}
	}
	return name
}

// View is a snapshot of a file of the logs: later rows are not part of it. It must be closed.
type View struct {
	Name     string
	Size     int64
	Modified time.Time

	file *os.File
}

// View opens a file of a service; "" is the file written last.
func (l *Logs) View(service, name string) (*View, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.services[service]
	if s == nil || len(s.files) == 0 {
		return nil, farm.NotFound()
	}
	if name == "" {
		return l.openView(slices.MaxFunc(slices.Collect(maps.Values(s.files)), compareLastRow))
	}
	f := s.files[name]
	if f == nil {
		return nil, farm.NotFound()
	}
	return l.openView(f)
}

// openView opens a file. The caller holds mu.
func (l *Logs) openView(f *logFile) (*View, error) {
	in, err := l.opts.Root.Open(f.path())
	if isNotExist(err) {
		return nil, farm.NotFound()
	}
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	return &View{Name: f.name, Size: f.size, Modified: f.lastRowAt, file: in}, nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Close closes the file.
func (v *View) Close() error { return v.file.Close() }

// Content returns a reader of the whole view.
func (v *View) Content() *io.SectionReader { return io.NewSectionReader(v.file, 0, v.Size) }

// Tail returns the last lines of the view, up to maxTailBytes bytes.
func (v *View) Tail(lines int) ([]byte, error) { return v.tail(lines, maxTailBytes) }

func (v *View) tail(lines int, most int64) ([]byte, error) {
	from := max(0, v.Size-most)
	var text []byte
	for at := v.Size; at > from && bytes.Count(text, []byte("\n")) <= lines; {
		n := min(64<<10, at-from)
		block := make([]byte, n, n+int64(len(text)))
		if _, err := v.file.ReadAt(block, at-n); err != nil {
			return nil, fmt.Errorf("read a log: %w", err)
		}
		text, at = append(block, text...), at-n
		if at == from && at > 0 { // the first line is incomplete
			_, text, _ = bytes.Cut(text, []byte("\n"))
		}
	}
	for extra := bytes.Count(text, []byte("\n")) - lines; extra > 0; extra-- {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text, nil
}

// lastRows returns the last rows of several files, sorted by time.
func lastRows(views []*View, lines int) ([]byte, error) {
	var rows []string
	for _, v := range views {
		text, err := v.tail(lines, streamStartBytes)
		if err != nil {
			return nil, err
		}
		rows = append(rows, strings.SplitAfter(string(text), "\n")...)
		if last := &rows[len(rows)-1]; *last != "" { // a kill interrupted it
			*last += "\n"
		}
	}
	rows = slices.DeleteFunc(rows, func(row string) bool { return row == "" || strings.HasPrefix(row, eventHeader) })
	if len(views) > 1 {
		slices.SortStableFunc(rows, func(a, b string) int {
			return strings.Compare(a[:min(len(timestampLayout), len(a))], b[:min(len(timestampLayout), len(b))])
		})
	}
	return []byte(strings.Join(rows[max(0, len(rows)-lines):], "")), nil
}
