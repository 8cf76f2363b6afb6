package portal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
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
	return failedList{Failed: failed[:min(mostFailed, len(failed))], FailedCount: len(failed)}, nil
}

const mostFailed = 200 // instances that are listed

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
		pathWithQuery("/api/v1/vm/logs", "id", id), "")}
	v.title = "Logs of instance " + shortID(id)
	if out.File == "" && len(files) > 0 {
		out.File = files[0].Name
	}
	if out.File == "" {
		return out, nil
	}
	out.View = pathWithQuery("/api/v1/vm/logs", "id", id, "file", out.File)
	stream, err := v.VMLog(v, id, out.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	text, out.SkippedBytes = lastRows(text)
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

// failureLog returns the end of the newest log that an instance left; nil: there is none that the visitor may see.
func failureLog(v *visit, id string) *logExcerpt {
	files, err := v.VMLogs(v, id)
	if err != nil || len(files) == 0 {
		return nil
	}
	newest := slices.MaxFunc(files, func(a, b client.VMLog) int { return a.Modified.Compare(b.Modified) })
	stream, err := v.VMLog(v, id, newest.Name)
	if err != nil {
		return nil
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	if err != nil {
		return nil
	}
	return newLogExcerpt(newest.Name, string(text))
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

// lastRows returns the last whole rows of a log, and how many bytes are before them.
func lastRows(text []byte) (end []byte, before int64) {
	if len(text) <= maxVMLog {
		return text, 0
	}
	end = text[len(text)-maxVMLog:]
	if i := bytes.IndexByte(end, '\n'); i >= 0 {
		end = end[i+1:]
	}
	return end, int64(len(text) - len(end))
}

const maxVMLog = 1 << 20 // bytes of the end that are shown: what failed is there; all of it can be downloaded
