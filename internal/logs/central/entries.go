package central

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/logs/logparse"
)

// The limits of one search.
const (
	MaxEntries   = 1000
	scanBytes    = 8 << 20   // bytes of a single file that are read
	scanEndBytes = 512 << 10 // bytes of each file, of several
	scanBlock    = 64 << 10
	maxCarry     = 1 << 20 // bytes of a row; longer ones, which this package does not write, are skipped
)

// EntryQuery selects rows.
type EntryQuery struct {
	File   string // "": the ends of the service's last files
	Filter logparse.Filter
	Limit  int   // 1 to MaxEntries: the last matching rows
	Before int64 // only rows that begin before this byte of File; 0: all
}

// Entries returns the last rows of a service that match. It reads backwards from the end, and a bounded
// number of bytes.
func (l *Logs) Entries(service string, q EntryQuery) (out api.LogEntries, err error) {
	out.Entries = []api.LogEntry{}
	if q.File != "" || service == EventService {
		v, err := l.View(service, q.File)
		if err != nil {
			return out, err
		}
		defer func() { _ = v.Close() }()
		return v.entries(service, q, scanBytes)
	}
	if q.Before > 0 {
		return out, farm.Invalid("before", "requires file")
	}
	views, all, err := l.lastViews(service)
	for _, v := range views {
		defer func() { _ = v.Close() }()
	}
	if err != nil {
		return out, err
	}
	out.Complete = all
	for _, v := range views {
		part, err := v.entries(service, q, scanEndBytes)
		if err != nil {
			return out, err
		}
		out.Entries = append(out.Entries, part.Entries...)
		out.Bytes += part.Bytes
		out.Complete = out.Complete && part.Complete
	}
	slices.SortStableFunc(out.Entries, func(a, b api.LogEntry) int { return a.Time.Compare(b.Time) })
	if extra := len(out.Entries) - q.Limit; extra > 0 {
		out.Entries, out.Complete = out.Entries[extra:], false
	}
	return out, nil
}

// lastViews opens the files of a service that were written last, and reports whether those are all.
func (l *Logs) lastViews(service string) (views []*View, all bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := l.sortedFiles(service)
	if len(files) == 0 {
		return nil, false, farm.NotFound()
	}
	for _, f := range files[max(0, len(files)-streamStartFiles):] {
		v, err := l.openView(f)
		if farm.CodeOf(err) == farm.CodeNotFound {
			continue
		}
		if err != nil {
			return views, false, err
		}
		views = append(views, v)
	}
	return views, len(files) <= streamStartFiles, nil
}

// entries returns the last matching rows of the view, from at most most bytes.
func (v *View) entries(service string, q EntryQuery, most int64) (out api.LogEntries, err error) {
	out.Entries, out.File = []api.LogEntry{}, v.Name
	end := v.Size
	if q.Before > 0 {
		end = min(end, q.Before)
	}
	ended := false
	begin, err := scanBackwards(v.file, end, most, func(row []byte) bool {
		if bytes.HasPrefix(row, []byte(eventHeader)) || len(row) == 0 {
			return true
		}
		entry := logparse.Row(service, string(row), service == EventService)
		since := q.Filter.Since
		if ended = !since.IsZero() && !entry.Time.IsZero() && entry.Time.Before(since); ended {
			return false
		}
		if q.Filter.Match(entry) {
			out.Entries = append(out.Entries, entry)
		}
		return len(out.Entries) < q.Limit
	})
	if err != nil {
		return out, fmt.Errorf("read a log: %w", err)
	}
	slices.Reverse(out.Entries)
	out.Bytes = end - begin
	if out.Complete = ended || begin == 0; !out.Complete {
		out.Before = begin
	}
	return out, nil
}

// scanBackwards calls row with every line before end, the last one first, until it returns false or most
// bytes were read. It returns where the last line begins that row got; 0 when those were all.
func scanBackwards(r io.ReaderAt, end, most int64, row func(line []byte) bool) (begin int64, err error) {
	var carry []byte // the end of a line whose begin is not read yet
	begin = end
	for at := end; at > 0 && end-at < most; {
		n := min(scanBlock, at, most-(end-at))
		block := make([]byte, n, n+int64(len(carry)))
		if _, err := r.ReadAt(block, at-n); err != nil {
			return begin, err
		}
		at -= n
		data := append(block, carry...)
		for len(data) > 0 {
			line := bytes.TrimSuffix(data, []byte("\n"))
			i := bytes.LastIndexByte(line, '\n')
			if i < 0 && at > 0 {
				break
			}
			begin = at + int64(i) + 1
			if !row(line[i+1:]) {
				return begin, nil
			}
			data = data[:i+1]
		}
		if carry = data; len(carry) > maxCarry {
			carry, begin = nil, at
		}
		if begin == end && end-at >= most { // a row is longer than all that is read: the next call continues in it
			begin = at
		}
	}
	return begin, nil
}
