package rest

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// WithETag is the result of a handler that knows the version of its response: the body is the same while Tag
// is. Other bodies get a tag by their content.
type WithETag struct {
	Body any
	ETag string // has only characters that need no quoting
}

// maxTaggedBytes is the largest body that is hashed for its tag, in bytes.
const maxTaggedBytes = 4 << 20

// isReadOnly reports whether a request is read-only.
func isReadOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// ContentTag returns the tag of a body by its content; "" if it gets none.
func ContentTag(pieces ...[]byte) string {
	if Fragments(pieces).Size() > maxTaggedBytes {
		return ""
	}
	sum := sha256.New()
	for _, piece := range pieces {
		sum.Write(piece)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// writeNotModified sets the ETag of a response and reports whether the client already has that response; then it has
// sent status 304. Tags are weak: they identify the body, compressed or not.
func writeNotModified(w http.ResponseWriter, r *http.Request, tag string) bool {
	if tag == "" {
		return false
	}
	quoted := `W/"` + tag + `"`
	w.Header()["Etag"] = []string{quoted}
	if !hasTag(r.Header["If-None-Match"], tag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// hasTag reports whether a tag is among those of a header; weak and strong ones compare equal, and * matches
// any.
func hasTag(values []string, tag string) bool {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == `"`+tag+`"` {
				return true
			}
		}
	}
	return false
}
