"""What the assistant can do. Workers import it; each call has a process of its own, and a connection that is fresh."""

from __future__ import annotations

from palaver import tool

from .models import Ticket


@tool
def find_ticket(number: int) -> str:
    """Look a ticket up by its number."""
    ticket = Ticket.objects.filter(pk=number).first()
    return f"{ticket.subject} ({ticket.state})" if ticket else "There is no such ticket."


@tool(risky=True)
def refund(number: int) -> str:
    """Give the customer of a ticket the money back."""
    return f"{Ticket.objects.filter(pk=number).update(refunded=True)} refunded"
