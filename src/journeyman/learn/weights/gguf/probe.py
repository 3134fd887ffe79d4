"""Texts to try a tokenizer and a model on when nobody gives better ones: of several kinds, so that no kind goes unseen."""

TEXTS = (
    "The order of three blue mugs and one green plate leaves the warehouse on 5 March and arrives in Oslo two days later.",
    "If the customer's address can't be found, don't guess: ask them, and keep what they say. IT'S BETTER THAN A WRONG ONE.",
    "def total(prices, rate=0.25):\n    net = sum(p for p in prices if p is not None)\n    return round(net * (1 + rate), 2)\n",
    '{"tool": "create_order", "arguments": {"sku": "MUG-BLUE-01", "quantity": 3, "price_cents": 1299, "city": "Oslo"}}',
    "SELECT city, COUNT(*) AS n FROM orders WHERE day >= '2026-01-05' GROUP BY city ORDER BY n DESC LIMIT 10;",
    "Question: a train leaves at 14:35 and needs 2 h 50 min. When does it arrive?\nAnswer: 14:35 + 2:50 = 17:25.",
    "Ein größeres Übel: die Straße nach Łódź ist gesperrt; l'été dernier, où étiez-vous? ¿Mañana por la mañana?",
    "Москва далеко. 東京は大きい。 서울은 멀다. القاهرة مدينة كبيرة. वह कहाँ है?",
    "😀 1234567890 3.14159 -42 $9.99 100% #tag @name a_b-c/d\\e f(x)=x^2 <b>bold</b> & ~!?",
    "  two spaces,\tone tab,\n\n\na few lines,   three spaces, and an end  \n",
)
