package controllerrest

import (
	"bytes"
	"encoding/json"
	"iter"
	"net"
	"net/url"
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// InstanceJSON returns the JSON text of an instance in the list of instances. The controller's tables store it next
// to the record, so that a list is concatenated and not encoded.
func InstanceJSON(i *farm.Instance) []byte { return encodeElement(i, instanceToAPI(i)) }

// encodeElement encodes the element of an instance in its API form.
func encodeElement(i *farm.Instance, shape api.Instance) []byte {
	return encodeJSON(api.InstanceItem{
		InstanceID: i.ID, ExternalID: orNull(i.ExternalID), Name: orNull(i.Name), VM: shape,
	})
}

// encodeJSON encodes an instance in its API form.
func encodeJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // caused by a time beyond the year 9999, which the controller never makes
		return []byte("null")
	}
	return text
}

// The JSON text between the elements of a list.
var (
	listOpen  = []byte("[")
	listComma = []byte(",")
	listClose = []byte("]")
)

// elements concatenates a short list of instances, with VNC passwords if the caller may see them.
func elements(list []instances.View, passwords bool) rest.Fragments {
	return slices.Collect(elementStream(slices.Values(list), passwords))
}

// elementStream is elements for a long list: it keeps none of it in memory.
func elementStream(list iter.Seq[instances.View], passwords bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		words, before := messageCache{passwords: passwords}, listOpen
		var pieces rest.Fragments
		for inst := range list {
			pieces = words.element(append(pieces[:0], before), inst)
			for _, piece := range pieces {
				if !yield(piece) {
					return
				}
			}
			before = listComma
		}
		if len(pieces) == 0 && !yield(listOpen) {
			return
		}
		yield(listClose)
	}
}

// elementSize sums the bytes of an elementStream.
type elementSize struct {
	messages     messageCache
	fragments    rest.Fragments // of the last element; its memory is reused for the next one
	count        int
	elementBytes int // of all elements
}

func newElementSize(passwords bool) *elementSize {
	return &elementSize{messages: messageCache{passwords: passwords}}
}

func (s *elementSize) add(inst instances.View) {
	s.fragments = s.messages.element(s.fragments[:0], inst)
	s.count++
	s.elementBytes += s.fragments.Size()
}

// total is the size of the stream, including the text between the elements.
func (s *elementSize) total() int {
	return len(listOpen) + max(0, s.count-1)*len(listComma) + s.elementBytes + len(listClose)
}

// messageCache caches the encoding of the last message that was added to an element: most pending instances
// have the same reason.
type messageCache struct {
	message      string
	encodedField []byte
	passwords    bool // VNC passwords are included
}

// element appends the text of one element, and adds its message if the record has none.
func (s *messageCache) element(to rest.Fragments, inst instances.View) rest.Fragments {
	if s.passwords && hasVNCPassword(inst.Instance) {
		return append(to, withVNCPassword(inst))
	}
	text := inst.Encoded()
	if text == nil || inst.Message != inst.Instance.Message && inst.Instance.Message != "" {
		shown := inst.Clone()
		shown.Message = inst.Message
		return append(to, InstanceJSON(shown))
	}
	if inst.Message == inst.Instance.Message {
		return append(to, text)
	}
	// The names before it are strings, in which a quote is escaped: the first match is
	// the field itself.
	state := []byte(`"instance_state":"` + string(inst.State) + `"`)
	at := bytes.Index(text, state) + len(state)
	if s.message != inst.Message {
		quoted, _ := json.Marshal(inst.Message) // a string always marshals
		s.message, s.encodedField = inst.Message, append([]byte(`,"message":`), quoted...)
	}
	return append(to, text[:at], s.encodedField, text[at:])
}

// vmField returns the vm field of an instance's element.
func vmField(inst instances.View, passwords bool) rest.Fragments {
	pieces := (&messageCache{passwords: passwords}).element(nil, inst)
	vm := []byte(`,"vm":`)
	pieces[0] = pieces[0][bytes.Index(pieces[0], vm)+len(vm):]
	last := len(pieces) - 1
	pieces[last] = pieces[last][:len(pieces[last])-1]
	return pieces
}

// permissionVNC is the permission to open the console of a VM, and so to read its password.
const permissionVNC = farm.Permission("update_vm")

// showsVNCPasswords reports whether the caller of a request may see VNC passwords.
func showsVNCPasswords(r *rest.Request) bool {
	return rest.CallerOf(r.Context()).RequirePermission(permissionVNC) == nil
}

// hasVNCPassword reports whether an instance has a console with a password.
func hasVNCPassword(i *farm.Instance) bool {
	return i != nil && i.Options.VNCPassword != "" && i.VM != nil && i.VM.VNCPort > 0 && i.VM.HostIP != ""
}

// withVNCPassword encodes an instance with its VNC password, which the text stored with the record never has.
func withVNCPassword(inst instances.View) []byte {
	shown := inst.Clone()
	shown.Message = inst.Message
	return encodeElement(shown, shapeOf(shown, true))
}

// shapeOf returns the API form of an instance, with its VNC password if the caller may see that.
func shapeOf(i *farm.Instance, password bool) api.Instance {
	shape := instanceToAPI(i)
	if password && hasVNCPassword(i) {
		shape.VMInfo.VNC = vncURL(i.VM, url.UserPassword("", i.Options.VNCPassword))
	}
	return shape
}

// vncURL returns the VNC address of a VM, with the user information; nil without an address.
func vncURL(vm *farm.VMInfo, user *url.Userinfo) string {
	u := url.URL{Scheme: "vnc", User: user, Host: net.JoinHostPort(vm.HostIP, strconv.Itoa(vm.VNCPort))}
	return u.String()
}
