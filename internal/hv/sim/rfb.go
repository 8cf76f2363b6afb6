package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv/rfb"
)

// screen serves RFB (RFC 6143) to one viewer: raw pixels of 32 bits, and no more than current
// viewers need.
type screen struct {
	name, password string // an empty password admits every viewer
	clock          Clock

	typedText   string          // what is typed at the moment
	copiedText  string          // an entered line, for the viewer's clipboard; "": none is to be sent
	pressedKeys map[uint32]bool // pressed keys, by their symbols
	colorShift  [3]byte         // how far red, green and blue are shifted in a pixel
	byteOrder   binary.ByteOrder
}

const (
	screenWidth, screenHeight = 480, 270
	maxCutTextBytes           = 1 << 20 // bytes of a clipboard that are skipped
	viewerTimeout             = 30 * time.Second
)

var errUnsupportedViewer = errors.New("unsupported VNC viewer")

// ServeScreen serves the screen of a simulated VM to one viewer until the viewer leaves. The first 8 bytes of the
// password count. It does not close the connection.
func ServeScreen(c net.Conn, name, password string) {
	(&screen{name: name, password: password, clock: realClock{}}).serve(c)
}

// serve handles a viewer's connection.
func (s *screen) serve(c net.Conn) {
	s.pressedKeys, s.byteOrder = map[uint32]bool{}, binary.LittleEndian
	s.colorShift = [3]byte{16, 8, 0}
	_ = c.SetDeadline(time.Now().Add(viewerTimeout))
	if s.handshake(c) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	asked, done := make(chan viewerMessage), make(chan struct{})
	defer close(done)
	go func() {
		defer close(asked)
		for {
			m, err := readMessage(c)
			if err != nil {
				return
			}
			select {
			case asked <- m:
			case <-done:
				return
			}
		}
	}()
	s.sendUpdates(c, asked)
}

// sendUpdates sends updates to a viewer until it leaves.
func (s *screen) sendUpdates(c net.Conn, asked <-chan viewerMessage) {
	ticks := time.NewTicker(500 * time.Millisecond)
	defer ticks.Stop()
	var sent []byte // the picture that was sent to the viewer
	wants := false
	for {
		select {
		case m, ok := <-asked:
			if !ok || s.handleMessage(m) != nil {
				return
			}
			if s.copiedText != "" {
				if write(c, encodeCutText(s.copiedText)) != nil {
					return
				}
				s.copiedText = ""
			}
			if m.kind == msgUpdateRequest {
				wants = true
				if m.body[0] == 0 { // all of it
					sent = nil
				}
			}
		case <-ticks.C:
		}
		if !wants {
			continue
		}
		picture := s.drawPicture()
		top, bottom := changedRows(sent, picture)
		if top == bottom {
			continue
		}
		if write(c, s.encodeUpdate(picture, top, bottom)) != nil {
			return
		}
		sent, wants = picture, false
	}
}

// write sends a message to a viewer, which has to take it within viewerTimeout.
func write(c net.Conn, message []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(viewerTimeout))
	_, err := c.Write(message)
	return err
}

// encodeCutText returns the message with what the guest copied.
func encodeCutText(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{serverCutText, 0, 0, 0}, uint32(len(text))), text...)
}

// handshake performs the handshake with a viewer, authenticates it and describes the screen.
func (s *screen) handshake(c net.Conn) error {
	if err := rfb.AcceptViewer(c, s.password); err != nil {
		return err
	}
	shared := make([]byte, 1) // whether other viewers are allowed at the same time
	if _, err := io.ReadFull(c, shared); err != nil {
		return err
	}

	head := binary.BigEndian.AppendUint16(nil, screenWidth)
	head = binary.BigEndian.AppendUint16(head, screenHeight)
	head = append(head, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, s.colorShift[0], s.colorShift[1], s.colorShift[2], 0,
		0, 0)
	head = binary.BigEndian.AppendUint32(head, uint32(len(s.name)))
	_, err := c.Write(append(head, s.name...))
	return err
}

// The messages of a viewer, with their sizes behind the first byte.
const (
	msgSetPixelFormat = 0
	msgSetEncodings   = 2
	msgUpdateRequest  = 3
	msgKeyEvent       = 4
	msgPointerEvent   = 5
	msgCutText        = 6
)

var messageSizes = map[byte]int{
	msgSetPixelFormat: 19, msgSetEncodings: 3, msgUpdateRequest: 9, msgKeyEvent: 7, msgPointerEvent: 5, msgCutText: 7,
}

type viewerMessage struct {
	kind byte
	body []byte
}

// readMessage reads a viewer's message; what follows its fixed part is skipped.
func readMessage(r io.Reader) (m viewerMessage, err error) {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(r, kind); err != nil {
		return m, err
	}
	size, known := messageSizes[kind[0]]
	if !known {
		return m, errUnsupportedViewer
	}
	m = viewerMessage{kind[0], make([]byte, size)}
	if _, err := io.ReadFull(r, m.body); err != nil {
		return m, err
	}
	rest := int64(0)
	switch m.kind {
	case msgSetEncodings:
		rest = 4 * int64(binary.BigEndian.Uint16(m.body[1:]))
	case msgCutText:
		rest = int64(binary.BigEndian.Uint32(m.body[3:]))
	}
	if rest > maxCutTextBytes {
		return m, errUnsupportedViewer
	}
	_, err = io.CopyN(io.Discard, r, rest)
	return m, err
}

// handleMessage handles a message.
func (s *screen) handleMessage(m viewerMessage) error {
	switch m.kind {
	case msgSetPixelFormat:
		f := m.body[3:]
		if f[0] != 32 || f[3] == 0 || !bytes.Equal(f[4:10], []byte{0, 255, 0, 255, 0, 255}) {
			return errUnsupportedViewer
		}
		s.colorShift, s.byteOrder = [3]byte{f[10] & 31, f[11] & 31, f[12] & 31}, binary.LittleEndian
		if f[2] != 0 {
			s.byteOrder = binary.BigEndian
		}
	case msgKeyEvent:
		s.handleKey(binary.BigEndian.Uint32(m.body[3:]), m.body[0] != 0)
	}
	return nil
}

// The symbols of keys with a function.
const (
	keyBackspace, keyReturn, keyDelete = 0xff08, 0xff0d, 0xffff
	keyControl, keyAlt                 = 0xffe3, 0xffe9
	maxTypedBytes                      = 100

	serverCutText = 3 // the kind of the message
)

func (s *screen) handleKey(symbol uint32, down bool) {
	if !down {
		delete(s.pressedKeys, symbol)
		return
	}
	if len(s.pressedKeys) < maxTypedBytes {
		s.pressedKeys[symbol] = true
	}
	switch {
	case symbol == keyDelete && s.pressedKeys[keyControl] && s.pressedKeys[keyAlt]:
		s.typedText = "CTRL-ALT-DEL"
	case symbol == keyReturn:
		s.copiedText, s.typedText = s.typedText, ""
	case symbol == keyBackspace:
		s.typedText = s.typedText[:max(0, len(s.typedText)-1)]
	case symbol >= ' ' && symbol <= '~' && len(s.typedText) < maxTypedBytes:
		s.typedText += string(rune(symbol))
	}
}

// changedRows returns the rows in which two pictures differ; all rows without an old one.
func changedRows(old, now []byte) (top, bottom int) {
	if old == nil {
		return 0, screenHeight
	}
	row := func(p []byte, y int) []byte { return p[y*screenWidth : (y+1)*screenWidth] }
	for top < screenHeight && bytes.Equal(row(old, top), row(now, top)) {
		top++
	}
	for bottom = screenHeight; bottom > top && bytes.Equal(row(old, bottom-1), row(now, bottom-1)); bottom-- {
	}
	return top, bottom
}

// palette contains the colors of a picture.
var palette = [][3]uint32{{24, 27, 33}, {236, 238, 242}, {120, 170, 255}, {150, 156, 168}}

// encodeUpdate returns the message with some rows of a picture.
func (s *screen) encodeUpdate(picture []byte, top, bottom int) []byte {
	out := make([]byte, 0, 16+4*screenWidth*(bottom-top))
	out = append(out, 0, 0, 0, 1, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(top))
	out = binary.BigEndian.AppendUint16(out, screenWidth)
	out = binary.BigEndian.AppendUint16(out, uint16(bottom-top))
	out = append(out, 0, 0, 0, 0) // as they are
	var pixels [4][4]byte
	for i, c := range palette {
		s.byteOrder.PutUint32(pixels[i][:], c[0]<<s.colorShift[0]|c[1]<<s.colorShift[1]|c[2]<<s.colorShift[2])
	}
	for _, color := range picture[top*screenWidth : bottom*screenWidth] {
		out = append(out, pixels[color][:]...)
	}
	return out
}

// drawPicture draws the current picture: one byte per pixel, an index of palette.
func (s *screen) drawPicture() []byte {
	p := make([]byte, screenWidth*screenHeight)
	y := drawText(p, 20, 2, 3, "simulated VM: no guest runs here")
	y = drawText(p, y+16, 4, 1, s.name)
	drawText(p, y+16, 6, 2, s.clock.Now().UTC().Format(time.TimeOnly))
	drawText(p, screenHeight-48, 3, 1, "> "+s.typedText+"_")
	return p
}

const textMargin = 20 // pixels at the sides of a text

// drawText draws a text from row y on and returns the next row.
func drawText(p []byte, y, scale int, color byte, text string) int {
	x := textMargin
	for _, c := range strings.ToUpper(text) {
		if x+4*scale > screenWidth-textMargin {
			x, y = textMargin, y+7*scale
		}
		glyph, ok := glyphs[c]
		if !ok {
			glyph = glyphs['?']
		}
		for row := range 5 * scale {
			line := glyph[row/scale] - '0'
			for column := range 3 * scale {
				if at := (y+row)*screenWidth + x + column; line>>(2-column/scale)&1 == 1 && at < len(p) {
					p[at] = color
				}
			}
		}
		x += 4 * scale
	}
	return y + 7*scale
}

// glyphs are letters of three by five dots: one digit per row, whose bits are its dots.
var glyphs = map[rune]string{
	'A': "25755", 'B': "65656", 'C': "34443", 'D': "65556", 'E': "74647", 'F': "74644", 'G': "34553", 'H': "55755",
	'I': "72227", 'J': "11152", 'K': "55655", 'L': "44447", 'M': "57755", 'N': "65555", 'O': "25552", 'P': "65644",
	'Q': "25563", 'R': "65655", 'S': "34216", 'T': "72222", 'U': "55557", 'V': "55552", 'W': "55775", 'X': "55255",
	'Y': "55222", 'Z': "71247", '0': "75557", '1': "26227", '2': "61247", '3': "61216", '4': "55711", '5': "74616",
	'6': "34757", '7': "71122", '8': "75757", '9': "75716", '-': "00700", '.': "00002", ':': "02020", '_': "00007",
	'/': "11244", '>': "42124", '?': "61202", '!': "22202", ' ': "00000",
}
