package hostrest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxPathBytes bounds a path in bytes, like operating systems do.
const maxPathBytes = 4096

// query contains the parameters of a request.
type query struct {
	Path     string // absolute; "" is the whole host
	RealTime bool   // real-time scanning starts afterwards
	Since    time.Time
	MinScore float64
	Job      string // to mark
	SinceJob string // a marked job
}

// parameters are the names of all parameters.
var parameters = []string{"path", "real_time", "fromTime", "min_score", "job", "since_job"}

// readQuery reads the parameters of a request: of its query, and of a body that is a form or a
// JSON object.
func readQuery(w http.ResponseWriter, r *http.Request) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{},
			failure{http.StatusBadRequest, "The query cannot be read: write characters such as % and ; as %25 and %3B"}
	}
	if err := readBody(w, r, values); err != nil {
		return query{}, err
	}
	q, err := parseQuery(values)
	if err != nil {
		err = failure{http.StatusBadRequest, err.Error()}
	}
	return q, err
}

// readBody adds the parameters of a body to those of the query.
func readBody(w http.ResponseWriter, r *http.Request, to url.Values) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is too large: %d bytes are enough",
			maxBodyBytes)}
	}
	if err != nil {
		return failure{http.StatusBadRequest, "The body did not arrive whole"}
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil
	}
	if raw[0] == '{' {
		return readObject(raw, to)
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return failure{http.StatusBadRequest, "The body must be a JSON object or a form"}
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return failure{http.StatusBadRequest, "The body is a form that cannot be read"}
	}
	for name, list := range form {
		to[name] = append(to[name], list...)
	}
	return nil
}

// readObject adds the members of a JSON object. null means not given.
func readObject(raw []byte, to url.Values) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return failure{http.StatusBadRequest, "The body is not a JSON object"}
	}
	for _, name := range parameters {
		text := string(object[name])
		if text == "" || text == "null" {
			continue
		}
		if text[0] == '"' {
			_ = json.Unmarshal(object[name], &text)
		}
		to.Add(name, text)
	}
	return nil
}

// parseQuery reads the parameters. An empty one is not given; unknown ones are ignored.
func parseQuery(values url.Values) (q query, err error) {
	given := map[string]string{}
	for _, name := range parameters {
		for _, v := range values[name] {
			switch {
			case v == "":
			case given[name] != "" && given[name] != v:
				return q, fmt.Errorf("parameter %s occurs twice, as %q and as %q", name, clip(given[name]), clip(v))
			default:
				given[name] = v
			}
		}
	}
	if q.Path, err = parsePath(given["path"]); err != nil {
		return q, err
	}
	q.Job, q.SinceJob = given["job"], given["since_job"]
	if q.SinceJob != "" && given["fromTime"] != "" {
		return q, errors.New("since_job and fromTime are mutually exclusive")
	}
	if v := given["real_time"]; v != "" {
		if q.RealTime, err = strconv.ParseBool(v); err != nil {
			return q, fmt.Errorf("invalid real_time %q: want true or false", clip(v))
		}
	}
	if v := given["fromTime"]; v != "" {
		// An unescaped plus is a space here.
		if q.Since, err = time.Parse(time.RFC3339, strings.ToUpper(strings.ReplaceAll(v, " ", "+"))); err != nil {
			return q, fmt.Errorf("invalid fromTime %q: want an RFC 3339 time, such as 2026-01-31T15:04:05Z",
				clip(v))
		}
	}
	if v := given["min_score"]; v != "" {
		if q.MinScore, err = parseScore(v); err != nil {
			return q, fmt.Errorf("invalid min_score %q: want a number from 0 to 10, such as 7 or 7.5", clip(v))
		}
	}
	return q, nil
}

func parsePath(path string) (string, error) {
	switch {
	case path == "":
		return "", nil
	case len(path) > maxPathBytes:
		return "", fmt.Errorf("path has %d bytes: want at most %d", len(path), maxPathBytes)
	case strings.ContainsRune(path, 0) || !filepath.IsAbs(path):
		return "", fmt.Errorf("invalid path %q: want an absolute path", clip(path))
	}
	return filepath.Clean(path), nil
}

// parseScore reads an integer or a decimal, and no other form of a number.
func parseScore(text string) (float64, error) {
	if strings.Trim(text, "0123456789.") != "" || len(text) > 20 {
		return 0, errors.New("not a decimal number")
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v > 10 {
		return 0, errors.New("out of range")
	}
	return v, nil
}
