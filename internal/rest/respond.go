package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Null is the result of a handler whose response has the key body with the value null.
var Null = json.RawMessage("null")

// httpStatuses maps every error code to its HTTP status. Lookups and logical refusals have 200: existing clients
// raise an error on anything from 400 up before they read the message.
var httpStatuses = map[farm.Code]int{
	farm.CodeInvalid:         http.StatusBadRequest,
	farm.CodeNotFound:        http.StatusOK,
	farm.CodeRefused:         http.StatusOK,
	farm.CodeNoVersion:       http.StatusBadRequest,
	farm.CodeUnauthenticated: http.StatusUnauthorized,
	farm.CodeForbidden:       http.StatusForbidden,
	farm.CodeConflict:        http.StatusConflict,
	farm.CodeNoParent:        http.StatusPreconditionFailed,
	farm.CodeTooLarge:        http.StatusRequestEntityTooLarge,
	farm.CodeTooMany:         http.StatusTooManyRequests,
	farm.CodeBusy:            http.StatusTooManyRequests,
	farm.CodeUnavailable:     http.StatusServiceUnavailable,
	farm.CodeInternal:        http.StatusInternalServerError,
}

// jsonContentType is the value of the header Content-Type of all envelopes; it is not changed.
var jsonContentType = []string{"application/json"}

// AuthenticationRequired is the exact response to a missing or wrong credential.
const AuthenticationRequired = `{"status":"FAIL","message":"Authentication Required"}` + "\n"

// Encoded is the result of a handler with a complete response, including the envelope. It is not changed.
type Encoded []byte

// Encode encodes the successful response with a body once, for a handler that often returns it.
func Encode(body any) (Encoded, error) {
	raw, err := encode(body)
	if err != nil {
		return nil, err
	}
	return newEnvelope(api.StatusOK, "", raw), nil
}

// MessageOnly is the result of a handler whose successful response has a message and no body.
type MessageOnly string

// NoEnvelope is the result of a handler whose response has no envelope. It is not cached.
type NoEnvelope struct {
	Type string // Content-Type
	Text []byte
}

// WriteResponse writes a response in the envelope for a RawHandlerFunc.
func WriteResponse(w http.ResponseWriter, r *http.Request, body any) error {
	raw, err := encode(body)
	if err == nil {
		respond(w, r, nil, raw, nil) // it logs nothing
	}
	return err
}

// WriteNotFound writes the response of a RawHandlerFunc whose path names a missing file.
func WriteNotFound(w http.ResponseWriter, message string) {
	writeEnvelope(w, http.StatusNotFound, api.StatusFail, message, nil)
}

// respond writes the response of a request. All responses are written here.
func respond(w http.ResponseWriter, r *http.Request, log *slog.Logger, body any, err error) {
	if err != nil {
		respondError(w, r, log, err)
		return
	}
	tag := ""
	if tagged, ok := body.(WithETag); ok {
		body, tag = tagged.Body, tagged.ETag
	}
	switch body := body.(type) {
	case Fragments:
		respondFragments(w, r, body, tag)
		return
	case FragmentStream:
		respondStream(w, r, body, tag)
		return
	case Encoded:
		sendBody(w, http.StatusOK, body)
		return
	case MessageOnly:
		writeEnvelope(w, http.StatusOK, api.StatusOK, string(body), nil)
		return
	case NoEnvelope:
		w.Header().Set("Content-Type", body.Type)
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(body.Text)
		return
	}
	raw, err := encode(body)
	if err != nil {
		respondError(w, r, log, err)
		return
	}
	whole := newEnvelope(api.StatusOK, "", raw)
	packed := wantsGzip(w, r, len(whole)) // sets the Vary header, also when the body is not sent
	if raw != nil && isReadOnly(r) && writeNotModified(w, r, cmp.Or(tag, ContentTag(raw))) {
		return
	}
	if packed {
		writeGzip(w, slices.Values([][]byte{whole}))
		return
	}
	sendBody(w, http.StatusOK, whole)
}

func encode(body any) (json.RawMessage, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return body, nil
	default:
		return json.Marshal(body)
	}
}

func respondError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	err = explainContextError(r, err)
	code := farm.CodeOf(err)
	level, path, caller, cause := errorLevel(r.Context(), code), r.URL.Path, slog.Attr{}, any(err)
	if p := auditOf(r.Context()); p != nil {
		path, caller, cause = p.route.Pattern, slog.String("caller", p.Name), loggableError(level, err)
	}
	log.LogAttrs(r.Context(), level, "request failed", slog.String("request", w.Header().Get(RequestIDHeader)),
		slog.String("method", r.Method), slog.String("path", path), slog.String("code", string(code)),
		slog.Any("error", cause), caller)
	writeError(w, code, err)
}

// loggableError returns the logged form of the failure of a request that came through a guard. Paths, and messages
// about the caller's own mistakes, may contain anything the caller sent, even a misplaced secret. Only the name
// of the parameter is logged for these.
func loggableError(level slog.Level, err error) any {
	e, ok := errors.AsType[*farm.Error](err)
	switch {
	case !ok || level != slog.LevelDebug:
		return err
	case e.Err != nil:
		return e.Err
	default:
		return e.Field
	}
}

// writeError writes an error response.
func writeError(w http.ResponseWriter, code farm.Code, err error) {
	message := "Internal error (request " + w.Header().Get(RequestIDHeader) + ")"
	if e, ok := errors.AsType[*farm.Error](err); ok && code != farm.CodeInternal {
		message = e.Message
	}
	if code == farm.CodeUnauthenticated {
		w.Header()["Content-Type"] = jsonContentType
		if w.Header()[challengeHeader] == nil {
			w.Header().Set(challengeHeader, bearer+realm)
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(AuthenticationRequired))
		return
	}
	if e, ok := errors.AsType[*farm.Error](err); httpStatuses[code] == http.StatusTooManyRequests ||
		ok && e.RetryAfter > 0 {
		w.Header()["Retry-After"] = []string{RetryAfter(err)}
	}
	writeEnvelope(w, httpStatuses[code], api.StatusFail, message, nil)
}

// RetryAfter returns the header Retry-After of a request that met a limit, in whole seconds.
func RetryAfter(err error) string {
	wait := time.Second
	if e, ok := errors.AsType[*farm.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	return strconv.Itoa(int((wait + time.Second - 1) / time.Second))
}

// explainContextError returns a message for an ended context that has no farm.Error yet. Only a request that changes
// something can have taken effect.
func explainContextError(r *http.Request, err error) error {
	if _, ok := errors.AsType[*farm.Error](err); ok {
		return err
	}
	advice := "look whether it took effect before trying again"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		advice = "try again"
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return farm.Unavailable(err, "The request took too long; %s", advice)
	case errors.Is(err, context.Canceled):
		return farm.Unavailable(err, "The request was interrupted; %s", advice)
	default:
		return err
	}
}

// errorLevel returns the log level of a failure. A canceled context explains the failure: mostly the client has
// disconnected. A response is written all the same, since a stop cancels contexts too, and no response would be
// a 200 with an empty body.
func errorLevel(ctx context.Context, code farm.Code) slog.Level {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return slog.LevelDebug
	case code == farm.CodeInternal:
		return slog.LevelError
	case code == farm.CodeUnavailable || code == farm.CodeBusy:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// writeEnvelope writes an envelope; a nil body leaves its key out.
func writeEnvelope(w http.ResponseWriter, code int, state, message string, body json.RawMessage) {
	sendBody(w, code, newEnvelope(state, message, body))
}

func sendBody(w http.ResponseWriter, code int, whole []byte) {
	w.Header()["Content-Type"] = jsonContentType
	w.WriteHeader(code)
	_, _ = w.Write(whole) //nolint:gosec // JSON, with its content type
}

func newEnvelope(state, message string, body json.RawMessage) []byte {
	text := []byte(`""`)
	if message != "" {
		text, _ = json.Marshal(message) // a string always marshals
	}
	buf := make([]byte, 0, len(body)+len(text)+48)
	buf = append(buf, `{"status":"`...)
	buf = append(buf, state...)
	buf = append(buf, `","message":`...)
	buf = append(buf, text...)
	if body != nil {
		buf = append(buf, `,"body":`...)
		buf = append(buf, body...)
	}
	return append(buf, '}', '\n')
}
