// SPDX-License-Identifier: Apache-2.0

package program

// The operations behind opCall and opCallP: everything too rare for an instruction of its own. Each
// is plain data; the machine turns it into a function when a program is loaded.
//
// Slots are named D (destination), A and B (operands), Index (an index in a slot). N counts words.
type (
	// WideArith computes D = A Op B modulo 2^(64·N); Op is one of + - * & | ^.
	WideArith struct {
		Op      string
		D, A, B uint32
		N       int
	}
	// WideNot computes D = ^A.
	WideNot struct {
		D, A uint32
		N    int
	}
	// WideShift shifts A by the amount in slot Amount.
	WideShift struct {
		D, A, Amount uint32
		N            int
		Right        bool
		Signed       bool // arithmetic shift to the right
	}
	// WideDivide computes the quotient, or with Mod the remainder, of unsigned numbers.
	WideDivide struct {
		D, A, B uint32
		N       int
		Mod     bool
	}
	// WideCompare sets D to A Op B; Op is one of opEq to opLeS.
	WideCompare struct {
		Op      Opcode
		D, A, B uint32
		N       int
	}
	// WideSelect sets D to A if the slot Cond is not zero, else to B.
	WideSelect struct {
		D, A, B, Cond uint32
		N             int
	}
	// WideSignExtend extends the Have words of A, whose sign is bit Sign, to N words.
	WideSignExtend struct {
		D, A          uint32
		Have, Sign, N int
	}
	// WideZeroExtend extends the Have words of A to N words.
	WideZeroExtend struct {
		D, A    uint32
		Have, N int
	}
	// WideClamp limits A to the range from Low to High.
	WideClamp struct {
		D, A, Low, High uint32
		N               int
		Signed          bool
	}
	// WideStore copies N words to a field of Width bits.
	WideStore struct {
		D, A     uint32
		N, Width int
	}
	// OneWord sets D to the N words of A if they fit one word, else to all ones.
	OneWord struct {
		D, A uint32
		N    int
	}

	// HeaderRef names a header: fixed, or found when a packet is processed.
	HeaderRef struct {
		Header *Header // a fixed header; nil: an element of Stack, or a member of Union
		Stack  *Stack
		Last   bool   // selects the element of Stack that was extracted last, instead of the element at Index
		Index  uint32 // slot that holds the index
		Union  UnionRef
		Member int
	}
	// UnionRef names a header union: fixed, or found when a packet is processed.
	UnionRef struct {
		Union *Union // a fixed union; nil: an element of Stack
		Stack *UnionStack
		Last  bool   // selects the element that was extracted last, instead of the element at Index
		Index uint32 // slot that holds the index
	}

	// LoadField copies a field of N words to D; a header that does not exist reads as zero.
	LoadField struct {
		D      uint32
		From   HeaderRef
		Offset int // offset of the field from the header's first slot
		N      int
	}
	// StoreField copies A to a field of N words and Width bits, if the header exists.
	StoreField struct {
		To       HeaderRef
		Offset   int
		A        uint32
		N, Width int
	}
	// CopyVariable copies a variable-length field and its length.
	CopyVariable struct {
		To, From, ToLength, FromLength int
		N, Room                        int // words of the source and of the target
	}
	// AddHeader makes a header valid, its fields zero if it was not.
	AddHeader struct{ To HeaderRef }
	// RemoveHeader makes a header invalid.
	RemoveHeader struct{ To HeaderRef }
	// AssignHeader copies a header with its validity.
	AssignHeader struct{ To, From HeaderRef }
	// AssignStack copies a header stack.
	AssignStack struct{ To, From *Stack }
	// AssignUnion copies a header union.
	AssignUnion struct{ To, From UnionRef }
	// AssignUnionStack copies a stack of header unions.
	AssignUnionStack struct{ To, From *UnionStack }
	// ShiftStack is push_front or, with Pop, pop_front, by the count in a slot.
	ShiftStack struct {
		Stack *Stack
		Count uint32
		Pop   bool
	}
	// ShiftUnionStack is ShiftStack for a stack of header unions.
	ShiftUnionStack struct {
		Stack *UnionStack
		Count uint32
		Pop   bool
	}
	// HeaderValid sets D to a header's validity.
	HeaderValid struct {
		D  uint32
		Of HeaderRef
	}
	// UnionValid sets D to 1 if a member of the union is valid.
	UnionValid struct {
		D  uint32
		Of UnionRef
	}
	// HeadersEqual sets D to whether two headers are equal, or with Not whether they differ.
	HeadersEqual struct {
		D    uint32
		X, Y HeaderRef
		Not  bool
	}
	// UnionsEqual is HeadersEqual for header unions.
	UnionsEqual struct {
		D    uint32
		X, Y UnionRef
		Not  bool
	}

	// Extract extracts a header. With Next it extracts the next element of a stack, or a member of
	// that element for a stack of unions. Length is the slot with the bits of the variable-length
	// field; Variable marks a header with such a field.
	Extract struct {
		Header   *Header
		Stack    *Stack
		Unions   *UnionStack
		Member   int
		Variable bool
		Length   uint32
	}
	// Lookahead reads Width bits that begin Offset bits ahead into N words.
	Lookahead struct {
		D             uint32
		N             int
		Offset, Width int
	}
	// Advance skips bits, or with Bytes bytes; the count is in a slot.
	Advance struct {
		Count uint32
		Bytes bool
	}
	// ParserError ends the parser with the program's error whose number is in a slot.
	ParserError struct{ Code uint32 }
	// ChecksumError marks the packet's checksum as wrong.
	ChecksumError struct{}

	// Assert drops the packet if a slot is zero, and logs the statement's place.
	Assert struct {
		Cond      uint32
		Statement string
		Source    string
	}
	// LogMessage is log_msg().
	LogMessage struct {
		Text   string
		Values []LogValue
		Source string
	}
	// LogValue is a number in a log message.
	LogValue struct {
		A      uint32
		N      int
		Signed bool
	}
	// Random sets D to a number from the slot Low to the slot High. If that range is empty, the low
	// word of D is set to slot Keep, unless that is negative.
	Random struct {
		D, Low, High uint32
		N            int
		Keep         int
	}
	// LearnDigest generates the program's digest with this place.
	LearnDigest struct{ Digest int }
	// Truncate limits the packet to the bytes in a slot.
	Truncate struct{ Bytes uint32 }
	// Resubmit sends the packet through ingress once more, with the fields of a list.
	Resubmit struct{ List int }
	// Recirculate sends the packet through ingress once more after egress.
	Recirculate struct{ List int }
	// Clone copies the packet to the session in a slot.
	Clone struct {
		Session uint32
		List    int
	}
	// CountRound limits loops in actions: More is 1 as long as the packet may go round again.
	CountRound struct{ More, Rounds uint32 }

	// ExecuteMeter writes the color of a meter cell to a field.
	ExecuteMeter struct {
		Meter int
		Index uint32
		D     uint32
		Mask  uint64
	}
	// ReadCell copies a register cell to the N words of D, cut off at Width bits if that is not
	// zero. An index out of range leaves D, or with Clear sets it to zero.
	ReadCell struct {
		Register int
		Index    uint32
		D        uint32
		N, Width int
		Clear    bool
	}
	// WriteCell writes N words to a register cell of Width bits, more than 64.
	WriteCell struct {
		Register int
		Index, A uint32
		N, Width int
	}
)
