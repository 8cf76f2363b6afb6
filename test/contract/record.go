package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// recordedResponse is a response of a run, as a line of a file.
type recordedResponse struct {
	Route  string          `json:"route"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// maxRecorded is the size of the largest body that is recorded.
const maxRecorded = 3000

// recorder keeps one JSON response of each route, status and shape of the body. Responses with
// secrets and with paths of this machine are left out.
type recorder struct {
	mu   sync.Mutex // guards kept
	kept map[string]recordedResponse
}

// keep records the response of an exchange if it is the first of its kind.
func (c *recorder) keep(x exchange) {
	a := x.answer
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if c == nil || kind != "application/json" || len(a.body) > maxRecorded || x.wire || x.route.typed {
		return
	}
	if strings.Contains(x.route.path, "apikey") || strings.Contains(x.route.path, "openapi") {
		return
	}
	if bytes.Contains(a.body, []byte(os.TempDir())) {
		return
	}
	var envelope struct {
		Status string `json:"status"`
		Body   any    `json:"body"`
	}
	if json.Unmarshal(a.body, &envelope) != nil {
		return
	}
	shape := kindOf(envelope.Body)
	if list, ok := envelope.Body.([]any); ok {
		shape += fmt.Sprint(min(1, len(list)))
	}
	key := fmt.Sprintf("%s %d %s %s", x.route.pattern, a.code, envelope.Status, shape)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.kept[key]; !ok {
		c.kept[key] = recordedResponse{x.route.pattern, a.code, slices.Clone(a.body)}
	}
}

// write writes what was recorded, with another name in place of this machine's.
func (c *recorder) write(file string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	encode := json.NewEncoder(&out)
	encode.SetEscapeHTML(false)
	for _, key := range slices.Sorted(maps.Keys(c.kept)) {
		if err := encode.Encode(c.kept[key]); err != nil {
			return err
		}
	}
	text := bytes.ReplaceAll(out.Bytes(), []byte(`:"`+cmp.Or(host, "localhost")+`"`), []byte(`:"build-host"`))
	return os.WriteFile(file, text, 0o600)
}
