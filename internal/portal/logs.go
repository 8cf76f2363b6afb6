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

func (p *portal) logPages() []page {
	return []page{
		{pattern: "/logs", templateName: "logs", title: "Logs", buildView: listLogs},
		{pattern: "/logs/{service}", templateName: "log", title: "Log", buildView: showLog},
		{pattern: "/logs/vm/{id}", templateName: "vmlog", title: "Logs of an instance", buildView: showVMLogs},
	}
}

// logList is the page of the services that have logs.
type logList struct {
	Services    []api.LogService
	Reason      string // why they are not shown
	Failed      []api.StoredFile
	FailedCount int // how many there are
	CurlCommand string
}

func listLogs(v *visit) (any, error) {
	list := logList{CurlCommand: curlCommand(v, "GET", "/api/v1/log/services", "")}
	services, err := v.Logs().Services(v)
	if err != nil {
		return nil, err
	}
	list.Services = services
	if failed, err := v.Files(v, "logs"); err == nil { // one directory for each instance
		slices.SortFunc(failed, func(a, b api.StoredFile) int { return b.Modified.Compare(a.Modified) })
		list.FailedCount = len(failed)
		list.Failed = failed[:min(rowsPerPage, len(failed))]
	} else if client.CodeOf(err) != client.ErrNotFound {
		list.Reason = notShownReason(err)
	}
	return list, nil
}

// logLine is a row of a log. Its ID is derived from its content, so that a link to it works for as
// long as it is shown.
type logLine struct{ ID, Text string }

// logView is the page of the log of a service.
type logView struct {
	Service, File    string
	Files            []api.LogFile
	Lines            int // the last so many are looked at
	Choices          []int
	SearchText       string
	Rows             []logLine
	SearchedRows     int    // rows that were looked at
	IsNewestFile     bool   // the file that is written to
	View, ArchiveURL string // addresses of the whole text
	StreamURL        string // address of what comes
	CurlCommand      string
}

const defaultLogLines = 500

var lineChoices = []int{100, defaultLogLines, 2000, 5000}

func showLog(v *visit) (any, error) {
	service := v.request.PathValue("service")
	files, err := v.Logs().Files(v, service)
	if err != nil {
		return nil, err
	}
	slices.Reverse(files) // the newest first
	out := logView{
		Service: service, File: v.query.Get("file"), Files: files, Lines: defaultLogLines, Choices: lineChoices,
		SearchText: strings.TrimSpace(v.query.Get("q")),
	}
	if n, err := strconv.Atoi(v.query.Get("lines")); err == nil && slices.Contains(lineChoices, n) {
		out.Lines = n
	}
	v.title = "Log of " + service
	newest := ""
	if len(files) > 0 {
		newest = slices.MaxFunc(files, func(a, b api.LogFile) int { return a.LastWrite.Compare(b.LastWrite) }).Name
	}
	if out.File == "" {
		out.File = newest
	}
	out.IsNewestFile = out.File == newest
	stream, err := v.Logs().View(v, client.LogView{Service: service, File: out.File, Lines: out.Lines})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	out.Rows, out.SearchedRows = findLines(string(text), out.SearchText)
	out.View = pathWithQuery("/api/v1/log/view", "service", service, "file", out.File)
	out.ArchiveURL = pathWithQuery("/api/v1/log/archive", "service", service)
	if out.IsNewestFile {
		out.StreamURL = pathWithQuery("/api/v1/log/stream", "service", service, "lines", 1)
	}
	out.CurlCommand = curlCommand(v, "GET",
		pathWithQuery("/api/v1/log/view", "service", service, "file", out.File, "lines", out.Lines), "")
	return out, nil
}

// findLines returns the lines of a text that hold another, in whatever case.
func findLines(text, find string) (rows []logLine, looked int) {
	find = strings.ToLower(find)
	seen := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		looked++
		sum := sha256.Sum256([]byte(line))
		id := "l-" + hex.EncodeToString(sum[:6])
		if seen[id]++; seen[id] > 1 {
			id += "-" + strconv.Itoa(seen[id])
		}
		if find == "" || strings.Contains(strings.ToLower(line), find) {
			rows = append(rows, logLine{id, line})
		}
	}
	return rows, looked
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
	out.Rows, _ = findLines(string(text), "")
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
