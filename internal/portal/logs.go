package portal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (p *portal) logPages() []page {
	return []page{
		{path: "/logs", name: "logs", title: "Logs", load: listLogs},
		{path: "/logs/{service}", name: "log", title: "Log", load: oneLog},
		{path: "/logs/vm/{id}", name: "vmlog", title: "Logs of an instance", load: logsOfVM},
	}
}

// logList is the page of the services that have logs.
type logList struct {
	Services []api.LogService
	Why      string // they are not shown
	Failed   []api.StoredFile
	FailedAt int // how many there are
	Curl     string
}

func listLogs(v *visit) (any, error) {
	list := logList{Curl: curl(v, "GET", "/api/v1/log/services", "")}
	services, err := v.Logs().Services(v)
	if err != nil {
		return nil, err
	}
	list.Services = services
	if failed, err := v.Files(v, "logs"); err == nil { // one directory for each instance
		slices.SortFunc(failed, func(a, b api.StoredFile) int { return b.Modified.Compare(a.Modified) })
		list.FailedAt = len(failed)
		list.Failed = failed[:min(rowsOfPage, len(failed))]
	} else if client.CodeOf(err) != client.ErrNotFound {
		list.Why = refusal(err)
	}
	return list, nil
}

// logLine is a row of a log. Its ID is derived from its content, so that a link to it works for as
// long as it is shown.
type logLine struct{ ID, Text string }

// logView is the page of the log of a service.
type logView struct {
	Service, File string
	Files         []api.LogFile
	Lines         int // the last so many are looked at
	Choices       []int
	Find          string
	Rows          []logLine
	Looked        int    // rows that were looked at
	Newest        bool   // the file that is written to
	View, Archive string // addresses of the whole text
	Stream        string // address of what comes
	Curl          string
}

const usualLines = 500

var lineChoices = []int{100, usualLines, 2000, 5000}

func oneLog(v *visit) (any, error) {
	service := v.r.PathValue("service")
	files, err := v.Logs().Files(v, service)
	if err != nil {
		return nil, err
	}
	slices.Reverse(files) // the newest first
	out := logView{
		Service: service, File: v.q.Get("file"), Files: files, Lines: usualLines, Choices: lineChoices,
		Find: strings.TrimSpace(v.q.Get("q")),
	}
	if n, err := strconv.Atoi(v.q.Get("lines")); err == nil && slices.Contains(lineChoices, n) {
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
	out.Newest = out.File == newest
	stream, err := v.Logs().View(v, client.LogView{Service: service, File: out.File, Lines: out.Lines})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	out.Rows, out.Looked = linesOf(string(text), out.Find)
	out.View = query("/api/v1/log/view", "service", service, "file", out.File)
	out.Archive = query("/api/v1/log/archive", "service", service)
	if out.Newest {
		out.Stream = query("/api/v1/log/stream", "service", service, "lines", 1)
	}
	out.Curl = curl(v, "GET", query("/api/v1/log/view", "service", service, "file", out.File, "lines", out.Lines), "")
	return out, nil
}

// linesOf returns the lines of a text that hold another, in whatever case.
func linesOf(text, find string) (rows []logLine, looked int) {
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
	ID, File string
	Files    []client.VMLog
	Rows     []logLine
	Cut      int64 // bytes before them that are not shown
	View     string
	Curl     string
}

func logsOfVM(v *visit) (any, error) {
	id := v.r.PathValue("id")
	files, err := v.VMLogs(v, id)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b client.VMLog) int { return b.Modified.Compare(a.Modified) })
	out := vmLogView{ID: id, Files: files, File: v.q.Get("file"), Curl: curl(v, "GET",
		query("/api/v1/vm/logs", "id", id), "")}
	v.title = "Logs of instance " + short(id)
	if out.File == "" && len(files) > 0 {
		out.File = files[0].Name
	}
	if out.File == "" {
		return out, nil
	}
	out.View = query("/api/v1/vm/logs", "id", id, "file", out.File)
	stream, err := v.VMLog(v, id, out.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	text, out.Cut = endOf(text)
	out.Rows, _ = linesOf(string(text), "")
	return out, err
}

// endOf returns the last whole rows of a log, and how many bytes are before them.
func endOf(text []byte) (end []byte, before int64) {
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
