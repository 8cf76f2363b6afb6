package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/buildyard/buildyard/internal/farm"
)

// MaxBody is the largest request body that is read, in bytes. It is large enough for a startup script of a few
// megabytes in base64.
const MaxBody = 8 << 20

// maxInitialAlloc bounds the memory that is allocated for an announced body before it arrives, in bytes.
const maxInitialAlloc = 64 << 10

// byteOrderMark is what some programs put before a text in UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Params are the parameters of one request: the fields of the JSON body and those of the query. A client may
// send each in either. The getters record the first error, so that a handler reads all parameters and calls Err
// once.
type Params struct {
	bodyText  json.RawMessage // the unchanged body
	body      map[string]json.RawMessage
	queryText string     // the unchanged query
	query     url.Values // nil until its first use
	firstErr  error
}

// ReadParams reads the parameters of a request. The body is parsed as JSON whatever its Content-Type; an empty
// one and null have no fields. A field of the body takes precedence over one of the query.
func ReadParams(w http.ResponseWriter, r *http.Request) (*Params, error) {
	return readParams(w, r, MaxBody)
}

func readParams(w http.ResponseWriter, r *http.Request, limit int64) (*Params, error) {
	p := &Params{queryText: r.URL.RawQuery}
	raw, err := ReadBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	p.bodyText = raw
	p.body, err = decodeObject(raw)
	return p, err
}

// readRaw reads the query and leaves the body, of at most limit bytes, unparsed.
func readRaw(w http.ResponseWriter, r *http.Request, limit int64) (*Params, error) {
	raw, err := ReadBody(w, r, limit)
	return &Params{queryText: r.URL.RawQuery, bodyText: raw}, err
}

// queryValues returns the values that a parameter has in the query.
func (p *Params) queryValues(name string) []string {
	if p.query == nil && p.queryText != "" {
		var err error
		if p.query, err = url.ParseQuery(p.queryText); err != nil {
			// ignoring a requested parameter would answer another request
			p.RecordError("query", "cannot be read: %v", err)
		}
	}
	return p.query[name]
}

// RawBody returns the whole body unchanged.
func (p *Params) RawBody() json.RawMessage { return p.bodyText }

// ReadBody reads a text of at most limit bytes, without the byte order mark that may be before it.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body := NewMinRateBody(w, r, bodyGrace, bodyRate)
	raw, err := readAll(w, r, body, limit)
	_ = body.Close()
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, farm.Errorf(farm.CodeTooLarge, "The request body is larger than %d bytes", limit)
	case err == nil:
		return bytes.TrimPrefix(raw, byteOrderMark), nil
	}
	w.Header().Set("Connection", "close") // the rest of the body is not read
	if _, ok := errors.AsType[*farm.Error](err); ok {
		return nil, err
	}
	return nil, farm.Errorf(farm.CodeInvalid, "The request body could not be read")
}

// readAll reads a body. A small one of announced length takes no more memory than it needs.
func readAll(w http.ResponseWriter, r *http.Request, body io.ReadCloser, limit int64) ([]byte, error) {
	if n := r.ContentLength; n > 0 && n <= min(maxInitialAlloc, limit) {
		raw := make([]byte, n)
		_, err := io.ReadFull(body, raw)
		return raw, err // read by readBody alone
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), maxInitialAlloc)) + bytes.MinRead)
	_, err := buf.ReadFrom(http.MaxBytesReader(w, body, limit))
	return buf.Bytes(), err
}

// decodeObject parses a JSON object; white space only means no fields.
func decodeObject(raw []byte) (map[string]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, &farm.Error{Code: farm.CodeInvalid, Message: "The request body is not a JSON object: " +
			describeJSONError(err)}
	}
	return fields, nil
}

// describeJSONError describes an error in a JSON text without Go type names.
func describeJSONError(err error) string {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Error() + " (at byte " + strconv.FormatInt(syntax.Offset, 10) + ")"
	case errors.As(err, &typ):
		return "found " + typ.Value
	default:
		return "it could not be parsed"
	}
}

// Err returns the first error that a getter met.
func (p *Params) Err() error { return p.firstErr }

// RecordError records an error about a field, unless there is one already.
func (p *Params) RecordError(field, format string, args ...any) {
	if p.firstErr == nil {
		p.firstErr = farm.Invalid(field, format, args...)
	}
}

// rawValue returns the JSON value of a parameter; nil when it is absent, null or "".
func (p *Params) rawValue(name string) json.RawMessage {
	if v, ok := p.body[name]; ok {
		v = bytes.TrimSpace(v)
		if s := string(v); s == "null" || s == `""` {
			return nil
		}
		return v
	}
	if v := p.queryValues(name); len(v) > 0 && v[0] != "" {
		quoted, _ := json.Marshal(v[0]) // a string always marshals
		return quoted
	}
	return nil
}

// Has reports whether a parameter is given; null and "" mean that it is not.
func (p *Params) Has(name string) bool { return p.rawValue(name) != nil }

// IsNull reports whether the body has null for a parameter, for routes that clear a value with it.
func (p *Params) IsNull(name string) bool { return string(p.body[name]) == "null" }

// Given filters names down to those that are given.
func (p *Params) Given(names ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !p.Has(n) })
}

// String returns a text parameter or "".
func (p *Params) String(name string) string {
	raw := p.rawValue(name)
	if raw == nil {
		return ""
	}
	if isPlainString(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		p.RecordError(name, "must be a string")
	}
	return s
}

// isPlainString reports whether a JSON string needs no decoding: ASCII without escapes, as almost every one is.
func isPlainString(raw json.RawMessage) bool {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return false
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c == '\\' || c == '"' || c < ' ' || c >= 0x80 {
			return false
		}
	}
	return true
}

// Required returns a text parameter that must be given.
func (p *Params) Required(name string) string {
	s := p.String(name)
	if s == "" {
		p.RecordError(name, "is required")
	}
	return s
}

// Text returns a string of at most max bytes without control characters.
func (p *Params) Text(name string, maxLen int) string {
	s := p.String(name)
	if len(s) > maxLen {
		p.RecordError(name, "must have at most %d bytes", maxLen)
		return ""
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }) {
		p.RecordError(name, "must not contain control characters")
		return ""
	}
	return s
}

// OneOf returns a string that must be among the allowed ones when it is given.
func (p *Params) OneOf(name string, allowed ...string) string {
	s := p.String(name)
	if s != "" && !slices.Contains(allowed, s) {
		p.RecordError(name, "must be one of %s", strings.Join(allowed, ", "))
	}
	return s
}

// Int returns an integer between lo and hi, or def when it is not given. It may
// arrive as a JSON string.
func (p *Params) Int(name string, def, lo, hi int) int {
	raw := p.rawValue(name)
	if raw == nil {
		return def
	}
	n, ok := parseInteger(raw)
	if !ok || n < int64(lo) || n > int64(hi) {
		p.RecordError(name, "must be an integer between %d and %d", lo, hi)
		return def
	}
	return int(n)
}

// IntOrZero is Int for a parameter whose 0 means that it is not given.
func (p *Params) IntOrZero(name string, def, lo, hi int) int {
	if raw := p.rawValue(name); raw != nil {
		if n, ok := parseInteger(raw); ok && n == 0 {
			return def
		}
	}
	return p.Int(name, def, lo, hi)
}

// Duration returns a time between 0 and hi, or 0 when it is not given: a text such as
// 90s or 2h, or a whole number of seconds.
func (p *Params) Duration(name string, hi time.Duration) time.Duration {
	raw := p.rawValue(name)
	if raw == nil {
		return 0
	}
	var d time.Duration
	n, ok := parseInteger(raw)
	if ok {
		d = time.Duration(max(-1, min(n, math.MaxInt32))) * time.Second
	} else {
		var text string
		var err error
		_ = json.Unmarshal(raw, &text)
		d, err = time.ParseDuration(strings.TrimSpace(text))
		ok = err == nil
	}
	if !ok || d < 0 || d > hi {
		p.RecordError(name, "must be seconds or a duration such as 90s or 2h, at most %s", hi)
		return 0
	}
	return d
}

// parseInteger reads an integer from a JSON number or a JSON string of digits.
func parseInteger(raw json.RawMessage) (int64, bool) {
	text := string(raw)
	if text[0] == '"' {
		if json.Unmarshal(raw, &text) != nil {
			return 0, false
		}
		text = strings.TrimSpace(text)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false // ParseFloat accepts hexadecimal and 1_0, which JSON does not
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// Bool returns a truth value, or def when it is not given. It may arrive as a JSON
// string "true" or "false", in capitals too: Python writes True into a query.
func (p *Params) Bool(name string, def bool) bool {
	raw := p.rawValue(name)
	switch strings.ToLower(string(raw)) {
	case "":
		return def
	case "true", `"true"`:
		return true
	case "false", `"false"`:
		return false
	default:
		p.RecordError(name, "must be true or false")
		return def
	}
}

// flagValues are the values of a flag.
var flagValues = map[string]bool{
	"": true, "true": true, "1": true, "yes": true, "on": true, "false": false, "0": false, "no": false, "off": false,
}

// Flag returns a truth value that may have no value, as in ?count, and whether it is given. It accepts true, 1,
// yes, on and their opposites, as JSON or as text; null is not given.
func (p *Params) Flag(name string) (value, given bool) {
	text := ""
	if raw, ok := p.body[name]; ok {
		text = strings.Trim(string(bytes.TrimSpace(raw)), `"`)
		if text == "null" {
			return false, false
		}
	} else {
		values := p.queryValues(name)
		if len(values) == 0 {
			return false, false
		}
		text = values[0]
	}
	value, ok := flagValues[strings.ToLower(text)]
	if !ok {
		p.RecordError(name, "must be true or false")
	}
	return value, true
}

// Strings returns an array of strings; nil when it is not given. A query may repeat
// the parameter.
func (p *Params) Strings(name string) []string {
	if _, inBody := p.body[name]; !inBody {
		if values := p.queryValues(name); values != nil {
			return values
		}
	}
	raw := p.rawValue(name)
	if raw == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		p.RecordError(name, "must be an array of strings")
	}
	return list
}

// CommaList is Strings for a list that may also be one text with commas between its elements. An element with a
// comma requires the array.
func (p *Params) CommaList(name string) []string {
	if raw := p.rawValue(name); raw == nil || raw[0] == '"' {
		list := p.queryValues(name)
		if _, inBody := p.body[name]; inBody || len(list) == 0 {
			list = []string{p.String(name)}
		}
		list = strings.Split(strings.Join(list, ","), ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return slices.DeleteFunc(list, func(s string) bool { return s == "" })
	}
	return p.Strings(name)
}

// Objects returns an array of objects, each as separate parameters.
func (p *Params) Objects(name string) []*Params {
	raw := p.rawValue(name)
	if raw == nil {
		return nil
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		p.RecordError(name, "must be an array of objects")
		return nil
	}
	items := make([]*Params, len(list))
	for i, fields := range list {
		items[i] = &Params{body: fields}
	}
	return items
}

// ObjectList returns the elements of the body of a Typed request: those of an array of at most that many objects,
// each as separate parameters, or the request itself if it is one object.
func (p *Params) ObjectList(most int) ([]*Params, error) {
	raw := bytes.TrimSpace(p.bodyText)
	if len(raw) == 0 || raw[0] != '[' {
		body, err := decodeObject(raw)
		return []*Params{{body: body, queryText: p.queryText}}, err
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &farm.Error{Code: farm.CodeInvalid, Message: "The request body is not an array of JSON objects: " +
			describeJSONError(err)}
	}
	if len(list) > most {
		return nil, farm.Errorf(farm.CodeInvalid, "The request body has %d elements; want at most %d", len(list), most)
	}
	items := make([]*Params, len(list))
	for i, fields := range list {
		items[i] = &Params{body: fields}
	}
	return items, nil
}

// Object returns one object as separate parameters; nil if it is absent.
func (p *Params) Object(name string) *Params {
	raw := p.rawValue(name)
	if raw == nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		p.RecordError(name, "must be an object")
		return nil
	}
	return &Params{body: fields}
}

// Keys returns the names of the fields of the body, sorted.
func (p *Params) Keys() []string {
	keys := make([]string, 0, len(p.body))
	for k := range p.body {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ScalarValue returns a value that is a string, an integer or a truth value.
func (p *Params) ScalarValue(name string) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(p.body[name]))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		v = nil
	}
	switch v := v.(type) {
	case string, bool:
		return v
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	}
	p.RecordError(name, "must be a string, an integer or a boolean")
	return nil
}

// JSON decodes a parameter into a value of any type.
func (p *Params) JSON(name string, into any) {
	if raw := p.rawValue(name); raw != nil && json.Unmarshal(raw, into) != nil {
		p.RecordError(name, "has the wrong form")
	}
}
