package rest

import (
	"iter"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/buildyard/buildyard/api"
)

// Fragments is the result of a handler whose large response is stored in fragments that together are the JSON
// text of the body. They are not changed.
type Fragments [][]byte

// Size returns the total size of all fragments in bytes.
func (p Fragments) Size() int {
	n := 0
	for _, piece := range p {
		n += len(piece)
	}
	return n
}

// FragmentStream is the result of a handler whose large response is generated while it is written. Its fragments
// together are the JSON text of the body. They are the same each time, and are not changed.
type FragmentStream struct {
	SizeBytes int // bytes of all fragments
	Fragments iter.Seq[[]byte]
}

// writeBufferBytes is how much of a response is written at a time, in bytes.
const writeBufferBytes = 64 << 10

var bufferPool = sync.Pool{New: func() any { return new([writeBufferBytes]byte) }}

// The text of a successful envelope before and after its body.
const envelopeStart, envelopeEnd = `{"status":"` + api.StatusOK + `","message":"","body":`, "}\n"

// respondFragments writes a successful response from fragments.
func respondFragments(w http.ResponseWriter, r *http.Request, body Fragments, tag string) {
	if tag == "" && isReadOnly(r) {
		tag = ContentTag(body...)
	}
	respondStream(w, r, FragmentStream{body.Size(), slices.Values(body)}, tag)
}

// respondStream writes a successful response fragment by fragment.
func respondStream(w http.ResponseWriter, r *http.Request, body FragmentStream, tag string) {
	packed := wantsGzip(w, r, body.SizeBytes) // sets the Vary header, also when the body is not sent
	if isReadOnly(r) && writeNotModified(w, r, tag) {
		return
	}
	if packed {
		writeGzip(w, func(yield func([]byte) bool) {
			if !yield([]byte(envelopeStart)) {
				return
			}
			for piece := range body.Fragments {
				if !yield(piece) {
					return
				}
			}
			yield([]byte(envelopeEnd))
		})
		return
	}
	writeFragments(w, body)
}

// writeFragments writes a successful envelope around fragments. Each byte is copied once, into writes that are
// large enough for a socket.
func writeFragments(w http.ResponseWriter, body FragmentStream) {
	w.Header()["Content-Type"] = jsonContentType
	w.Header().Set("Content-Length", strconv.Itoa(len(envelopeStart)+body.SizeBytes+len(envelopeEnd)))
	w.WriteHeader(http.StatusOK)
	whole, _ := bufferPool.Get().(*[writeBufferBytes]byte)
	defer bufferPool.Put(whole)
	buf := append(whole[:0], envelopeStart...)
	for piece := range body.Fragments {
		if len(buf)+len(piece)+len(envelopeEnd) > writeBufferBytes {
			if _, err := w.Write(buf); err != nil {
				return
			}
			buf = whole[:0]
		}
		if len(piece)+len(envelopeEnd) > writeBufferBytes {
			if _, err := w.Write(piece); err != nil {
				return
			}
			continue
		}
		buf = append(buf, piece...)
	}
	_, _ = w.Write(append(buf, envelopeEnd...))
}
