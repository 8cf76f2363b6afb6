package portal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// failedList is the page of the instances that left logs when they failed.
type failedList struct {
	Failed      []api.StoredFile // the newest first
	FailedCount int              // how many there are
}

func listVMLogs(v *visit) (any, error) {
	failed, err := v.Files(v, "logs") // one directory for each instance
	if err != nil && client.CodeOf(err) != client.ErrNotFound {
		return nil, err
	}
	slices.SortFunc(failed, func(a, b api.StoredFile) int { return b.Modified.Compare(a.Modified) })
	return failedList{Failed: failed[:min(maxFailed, len(failed))], FailedCount: len(failed)}, nil
}

const maxFailed = 200 // instances that are listed

// logLine is a row of a log. Its ID is derived from its content, so that a link to it works for as
// long as it is shown.
type logLine struct{ ID, Text string }

// splitLines returns the lines of a text.
func splitLines(text string) (rows []logLine) {
	ids := rowIDs{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		rows = append(rows, logLine{ids.next(line), line})
	}
	return rows
}

// rowIDs makes the IDs of rows: equal rows are numbered.
type rowIDs map[string]int

func (seen rowIDs) next(row string) string {
	sum := sha256.Sum256([]byte(row))
	id := "l-" + hex.EncodeToString(sum[:6])
	if seen[id]++; seen[id] > 1 {
		id += "-" + strconv.Itoa(seen[id])
	}
	return id
}

// vmLogView is the page of the logs that an instance left when it failed.
type vmLogView struct {
	ID, File     string
	Files        []client.VMLog
	Rows         []logLine
	SkippedBytes int64 // bytes before them that are not shown
	View         string
	CurlCommand  string
}

func showVMLogs(v *visit) (any, error) {
	id := v.request.PathValue("id")
	files, err := v.VMLogs(v, id)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b client.VMLog) int { return b.Modified.Compare(a.Modified) })
	out := vmLogView{ID: id, Files: files, File: v.query.Get("file"), CurlCommand: curlCommand(v, "GET",
		format.Path("/api/v1/vm/logs", "id", id), "")}
	v.title = "Logs of instance " + format.ShortID(id)
	if out.File == "" && len(files) > 0 {
		out.File = files[0].Name
	}
	if out.File == "" {
		return out, nil
	}
	out.View = format.Path("/api/v1/vm/logs", "id", id, "file", out.File)
	stream, err := v.VMLog(v, id, out.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	text, size, err := readEnd(stream, maxVMLog)
	text = lastRows(text, size, maxVMLogRows)
	out.SkippedBytes = size - int64(len(text))
	out.Rows = splitLines(string(text))
	return out, err
}

// logExcerpt is the end of the log of a failed VM.
type logExcerpt struct {
	File  string
	Lines []excerptLine
}

// excerptLine is a line of an excerpt; Marked: it is the first one about an error.
type excerptLine struct {
	Text   string
	Marked bool
}

const excerptLines = 14

// errorWord matches lines about errors.
var errorWord = regexp.MustCompile(`(?i)\b(error|failed|failure|fatal|panic|refused|denied)\b`)

// failureLog returns the end of the newest log that an instance left; nil: there is none, or it is not shown.
func failureLog(v *visit, id string) (excerpt *logExcerpt, none bool) {
	files, err := v.VMLogs(v, id)
	if err != nil || len(files) == 0 {
		return nil, err == nil
	}
	newest := slices.MaxFunc(files, func(a, b client.VMLog) int { return a.Modified.Compare(b.Modified) })
	stream, err := v.VMLog(v, id, newest.Name)
	if err != nil {
		return nil, false
	}
	defer func() { _ = stream.Close() }()
	text, size, err := readEnd(stream, maxExcerpt)
	if err != nil {
		return nil, false
	}
	return newLogExcerpt(newest.Name, string(lastRows(text, size, excerptLines))), false
}

// newLogExcerpt returns the last lines of a text, with the first one about an error marked.
func newLogExcerpt(file, text string) *logExcerpt {
	out := &logExcerpt{File: file}
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	marked := false
	for _, line := range lines[max(0, len(lines)-excerptLines):] {
		mark := !marked && errorWord.MatchString(line)
		marked = marked || mark
		out.Lines = append(out.Lines, excerptLine{strings.TrimRight(line, "\r"), mark})
	}
	return out
}

// readEnd returns at most the last n bytes of a log, and the size of all of it.
func readEnd(log io.Reader, n int) (end []byte, size int64, err error) {
	for chunk := make([]byte, 64<<10); ; {
		got, err := log.Read(chunk)
		size += int64(got)
		end = append(end, chunk[:got]...)
		if len(end) > 2*n {
			end = append(end[:0], end[len(end)-n:]...)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return end[max(0, len(end)-n):], size, err
		}
	}
}

// lastRows returns the last whole rows of the end of a log of a size, at most so many.
func lastRows(end []byte, size int64, rows int) []byte {
	if int64(len(end)) < size {
		end = end[bytes.IndexByte(end, '\n')+1:]
	}
	for i := len(end); i > 0; rows-- {
		if rows == 0 {
			return end[i:]
		}
		i = bytes.LastIndexByte(end[:i-1], '\n') + 1
	}
	return end
}

// The end of a log is shown, where the cause of a failure is; all of it can be downloaded.
const (
	maxVMLog     = 1 << 20 // bytes
	maxVMLogRows = 5000
	maxExcerpt   = 64 << 10 // bytes that are read for an excerpt
)
