package s3test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxKeys is the number of keys in one response of a listing: small, so that tests need several.
const maxKeys = 7

type listedObject struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
}

func (s *Server) list(w http.ResponseWriter, prefix, after string) {
	type result struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []listedObject
		IsTruncated           bool
		NextContinuationToken string
	}
	var out result
	for _, key := range s.Keys(prefix) {
		if key <= after {
			continue
		}
		if len(out.Contents) == maxKeys {
			out.IsTruncated, out.NextContinuationToken = true, out.Contents[maxKeys-1].Key
			break
		}
		s.mu.Lock()
		o, ok := s.objects[key]
		s.mu.Unlock()
		if ok {
			out.Contents = append(out.Contents, listedObject{
				Key: key, LastModified: o.modified.Format(time.RFC3339), ETag: `"` + o.etag + `"`, Size: len(o.data),
			})
		}
	}
	respondXML(w, out)
}

func (s *Server) listUploads(w http.ResponseWriter) {
	type upload struct {
		Key      string
		UploadID string `xml:"UploadId"`
	}
	var out struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []upload
	}
	s.mu.Lock()
	for id, u := range s.uploads {
		out.Upload = append(out.Upload, upload{u.key, id})
	}
	s.mu.Unlock()
	respondXML(w, out)
}

func (s *Server) begin(w http.ResponseWriter, key string) {
	s.mu.Lock()
	s.nextID++
	id := fmt.Sprintf("upload-%d", s.nextID)
	s.uploads[id] = &multipart{key: key, parts: map[int]object{}}
	s.mu.Unlock()
	respondXML(w, struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		Key      string
		UploadID string `xml:"UploadId"`
	}{Key: key, UploadID: id})
}

func (s *Server) handlePart(w http.ResponseWriter, r *http.Request, key string) {
	id := r.URL.Query().Get("uploadId")
	s.mu.Lock()
	u := s.uploads[id]
	s.mu.Unlock()
	if u == nil || u.key != key {
		respondError(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.putPart(w, r, u)
	case http.MethodPost:
		s.complete(w, r, id, u)
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.uploads, id)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		s.listParts(w, u)
	}
}

func (s *Server) putPart(w http.ResponseWriter, r *http.Request, u *multipart) {
	number, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
	data, bodyErr := readBody(r)
	if err != nil || bodyErr != nil {
		respondError(w, http.StatusBadRequest, "BadDigest")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := newObject(data, s.now())
	u.parts[number] = o
	w.Header().Set("ETag", `"`+o.etag+`"`)
}

func (s *Server) listParts(w http.ResponseWriter, u *multipart) {
	type part struct {
		PartNumber int
		ETag       string
		Size       int
	}
	var out struct {
		XMLName xml.Name `xml:"ListPartsResult"`
		Part    []part
	}
	s.mu.Lock()
	for number, o := range u.parts {
		out.Part = append(out.Part, part{number, `"` + o.etag + `"`, len(o.data)})
	}
	s.mu.Unlock()
	slices.SortFunc(out.Part, func(a, b part) int { return a.PartNumber - b.PartNumber })
	respondXML(w, out)
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, id string, u *multipart) {
	var in struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.NewDecoder(r.Body).Decode(&in); err != nil {
		respondError(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var data []byte
	for i, p := range in.Part {
		o, ok := u.parts[p.PartNumber]
		small := i < len(in.Part)-1 && len(o.data) < 5<<20
		if !ok || strings.Trim(p.ETag, `"`) != o.etag || small {
			respondError(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		data = append(data, o.data...)
	}
	o := newObject(data, s.now())
	o.etag += fmt.Sprintf("-%d", len(in.Part))
	s.objects[u.key] = o
	delete(s.uploads, id)
	respondXML(w, struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket  string
		Key     string
		ETag    string
	}{Bucket: Bucket, Key: u.key, ETag: `"` + o.etag + `"`})
}
