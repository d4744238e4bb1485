"""The four tiny worlds and their twelve procedures, as data.

Every world has one look-up tool, three possible pre-steps, three main tools (one per family)
and four possible post-steps. A family's hidden procedure is one pre-step (or none) and one
post-step: the instruction asks for the main change alone, so which pre- and post-step belong
to it can only come from experience.

The three kinds of family differ in where the main tool's second argument comes from: a number
in the instruction, a word in the instruction, or a number that only the look-up tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_NAMES = (
    "Ada", "Ben", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jana", "Kurt", "Lena",
    "Milo", "Nora", "Otto", "Pia", "Quinn", "Rosa", "Sven", "Tara", "Uma", "Vito", "Wanda", "Xena",
    "Yuri", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Berg", "Cole", "Drake", "Frost", "Grant", "Holm", "Jensen", "Klein", "Lowe", "Marsh", "North",
    "Payne", "Reed", "Stone", "Voss", "Wood",
)  # fmt: skip
CITIES = ("Oslo", "Lima", "Cairo", "Delhi", "Quito", "Tunis", "Riga", "Bonn")
WINGS = ("garden", "lake", "cliff", "park", "river", "castle")
TEAMS = ("network", "finance", "security", "mobile", "storage", "printer")
VALUES = tuple(range(2, 41))  # amounts, days, ...
ID_NUMBERS = tuple(range(60, 100))  # apart from VALUES, so that an id never looks like an amount

Kind = Literal["number", "word", "looked_up"]


@dataclass(frozen=True)
class Procedure:
    """The hidden steps around a main call, as tool names; none where there is no such step."""

    pre: str | None
    post: str | None


@dataclass(frozen=True)
class Family:
    """One kind of task in a domain.

    `main_tool(<id>, <argument>)` is asked for by the `templates`, which hold `{name}` and, save
    for the looked-up kind, `{value}`. `words` are the allowed values of a word argument.
    """

    name: str
    kind: Kind
    main_tool: str
    argument: str
    templates: tuple[str, ...]
    procedure: Procedure
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Domain:
    """One world: a collection of records with an id, an owner and one number each."""

    name: str
    class_name: str
    introduction: str
    collection: str
    id_name: str
    id_prefix: str
    owner: str
    number: str
    look_up: str
    pre_steps: tuple[str, ...]
    post_steps: tuple[str, ...]
    families: tuple[Family, ...]

    def family(self, name: str) -> Family:
        """The family of that name; `KeyError` if there is none."""
        return {family.name: family for family in self.families}[name]


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain(
            name="shop",
            class_name="Shop",
            introduction="Orders of a shop.",
            collection="orders",
            id_name="order_id",
            id_prefix="P-",
            owner="customer",
            number="total",
            look_up="find_order",
            pre_steps=("verify_order", "lock_order", "open_claim"),
            post_steps=("notify_customer", "archive_order", "print_receipt", "tag_order"),
            families=(
                Family(
                    name="refund",
                    kind="number",
                    main_tool="refund_order",
                    argument="amount",
                    templates=(
                        "Refund {value} euro to {name}.",
                        "{name} should get {value} euro back.",
                    ),
                    procedure=Procedure("verify_order", "notify_customer"),
                ),
                Family(
                    name="ship",
                    kind="word",
                    main_tool="ship_order",
                    argument="city",
                    templates=(
                        "Ship the order of {name} to {value}.",
                        "Send the goods of {name} to {value}.",
                    ),
                    procedure=Procedure("lock_order", "print_receipt"),
                    words=CITIES,
                ),
                Family(
                    name="invoice",
                    kind="looked_up",
                    main_tool="invoice_order",
                    argument="amount",
                    templates=(
                        "Invoice {name} for the whole order.",
                        "Write {name} an invoice over the total.",
                    ),
                    procedure=Procedure(None, "archive_order"),
                ),
            ),
        ),
        Domain(
            name="hotel",
            class_name="Hotel",
            introduction="Bookings of a hotel.",
            collection="bookings",
            id_name="booking_id",
            id_prefix="B-",
            owner="guest",
            number="price",
            look_up="find_booking",
            pre_steps=("check_room", "hold_booking", "clean_room"),
            post_steps=("send_key", "update_calendar", "inform_desk", "print_voucher"),
            families=(
                Family(
                    name="extend",
                    kind="number",
                    main_tool="extend_booking",
                    argument="nights",
                    templates=(
                        "Extend the stay of {name} by {value} nights.",
                        "{name} wants to stay {value} nights longer.",
                    ),
                    procedure=Procedure("check_room", "update_calendar"),
                ),
                Family(
                    name="move",
                    kind="word",
                    main_tool="move_booking",
                    argument="wing",
                    templates=(
                        "Move {name} to the {value} wing.",
                        "Give {name} a room in the {value} wing.",
                    ),
                    procedure=Procedure(None, "send_key"),
                    words=WINGS,
                ),
                Family(
                    name="settle",
                    kind="looked_up",
                    main_tool="settle_booking",
                    argument="amount",
                    templates=(
                        "Settle the hotel bill of {name}.",
                        "{name} checks out and pays the full price.",
                    ),
                    procedure=Procedure("hold_booking", "print_voucher"),
                ),
            ),
        ),
        Domain(
            name="library",
            class_name="Library",
            introduction="Loans of a library.",
            collection="loans",
            id_name="loan_id",
            id_prefix="L-",
            owner="reader",
            number="fee",
            look_up="find_loan",
            pre_steps=("scan_copy", "unblock_card", "confirm_loan"),
            post_steps=("stamp_card", "mail_reader", "sync_catalog", "shelve_copy"),
            families=(
                Family(
                    name="renew",
                    kind="number",
                    main_tool="renew_loan",
                    argument="days",
                    templates=(
                        "Renew the book of {name} for {value} days.",
                        "{name} may keep the book {value} more days.",
                    ),
                    procedure=Procedure(None, "stamp_card"),
                ),
                Family(
                    name="route",
                    kind="word",
                    main_tool="route_loan",
                    argument="branch",
                    templates=(
                        "Route the book of {name} to the {value} branch.",
                        "The {value} branch needs the copy that {name} has.",
                    ),
                    procedure=Procedure("scan_copy", "sync_catalog"),
                    words=CITIES,
                ),
                Family(
                    name="collect",
                    kind="looked_up",
                    main_tool="collect_fee",
                    argument="amount",
                    templates=(
                        "Collect the late fee from {name}.",
                        "{name} pays what is due on the loan.",
                    ),
                    procedure=Procedure("unblock_card", "mail_reader"),
                ),
            ),
        ),
        Domain(
            name="helpdesk",
            class_name="Helpdesk",
            introduction="Tickets of a helpdesk.",
            collection="tickets",
            id_name="ticket_id",
            id_prefix="T-",
            owner="user",
            number="hours",
            look_up="find_ticket",
            pre_steps=("triage_ticket", "freeze_ticket", "link_asset"),
            post_steps=("page_team", "close_ticket", "log_audit", "ask_rating"),
            families=(
                Family(
                    name="credit",
                    kind="number",
                    main_tool="credit_ticket",
                    argument="points",
                    templates=(
                        "Credit {name} with {value} points.",
                        "{name} earns {value} points for the wait.",
                    ),
                    procedure=Procedure("freeze_ticket", "ask_rating"),
                ),
                Family(
                    name="assign",
                    kind="word",
                    main_tool="assign_ticket",
                    argument="team",
                    templates=(
                        "Assign the ticket of {name} to the {value} team.",
                        "Let the {value} team help {name}.",
                    ),
                    procedure=Procedure("triage_ticket", "page_team"),
                    words=TEAMS,
                ),
                Family(
                    name="charge",
                    kind="looked_up",
                    main_tool="charge_ticket",
                    argument="hours",
                    templates=(
                        "Charge all hours on the ticket of {name}.",
                        "Book the time spent on {name} as work.",
                    ),
                    procedure=Procedure(None, "log_audit"),
                ),
            ),
        ),
    )
}

PROCEDURES: dict[tuple[str, str], Procedure] = {
    (domain.name, family.name): family.procedure
    for domain in DOMAINS.values()
    for family in domain.families
}
"""(domain, family) -> the hidden steps its checks ask for."""
